#include "api/handle.h"

#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>
#include <system_error>

namespace paceline::api {
namespace {

TEST_CASE("no exception leaves a function of the API") {
  CHECK(guarded([]() -> paceResult_t { throw std::bad_alloc(); }) == paceSystemError);
  CHECK(std::strcmp(paceGetLastError(nullptr), "out of memory") == 0);
  CHECK(guarded([]() -> paceResult_t {
          throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), "a thread");
        }) == paceSystemError);
  CHECK(std::strstr(paceGetLastError(nullptr), "a thread") != nullptr);
  CHECK(guarded([]() -> paceResult_t { throw std::logic_error("a defect"); }) == paceInternalError);
  CHECK(guarded([]() -> paceResult_t { throw 1; }) == paceInternalError);
  CHECK(guarded([]() -> Status { throw std::bad_alloc(); }).code() == Code::system);
  CHECK(guarded([] { return paceTimeout; }) == paceTimeout);
}

TEST_CASE("what throws inside of a group ends the group unrun") {
  REQUIRE(paceGroupStart() == paceSuccess);
  CHECK(guarded([]() -> paceResult_t { throw std::bad_alloc(); }) == paceSystemError);
  CHECK(paceGroupEnd() == paceSystemError);
  REQUIRE(paceGroupStart() == paceSuccess);
  CHECK(paceGroupEnd() == paceSuccess);
}

}  // namespace
}  // namespace paceline::api
