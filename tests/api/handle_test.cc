#include "api/handle.h"

#include <doctest/doctest.h>

#include <cstring>
#include <stdexcept>
#include <system_error>

#include "cuda/driver/fake_driver.h"

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

TEST_CASE("a call on GPU memory knows whose it is") {
  testing::with_fake_driver([](const testing::FakeDriver& driver) {
    testing::FakeRange range(driver, 2 * testing::fake_granularity);
    range.map(0, testing::fake_granularity);
    range.map(testing::fake_granularity, testing::fake_granularity, 1, 1);
    std::byte on_host{};
    Request request{.send = range.at(0), .recv = range.at(testing::fake_granularity), .count = 1};
    const auto on_device = is_on_device(request, true, true, nullptr);
    REQUIRE(on_device.ok());
    REQUIRE(*on_device);
    REQUIRE(request.send_gpu == 0);
    REQUIRE(request.recv_gpu == 1);
    request.recv = &on_host;
    REQUIRE(is_on_device(request, true, true, nullptr).status().message().find("copy one") != std::string::npos);
    REQUIRE(*is_on_device(request, true, false, nullptr));
    REQUIRE_FALSE(*is_on_device(request, false, true, nullptr));
    REQUIRE(request.send_gpu == -1);
  });
}

TEST_CASE("a host stream is for calls on host memory alone") {
  testing::with_fake_driver([](const testing::FakeDriver& driver) {
    testing::FakeRange range(driver, testing::fake_granularity);
    range.map(0, testing::fake_granularity);
    std::byte on_host{};
    paceHostStream_t stream = nullptr;
    REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
    Request request{.which = Collective::all_reduce, .send = range.at(0), .recv = range.at(64), .count = 1};
    const auto refused = is_on_device(request, true, true, stream);
    REQUIRE(refused.status().code() == Code::invalid_argument);
    REQUIRE(refused.status().message().find("all-reduce: `stream` is a paceHostStream_t") == 0);
    request.send = request.recv = &on_host;
    REQUIRE_FALSE(*is_on_device(request, true, true, stream));
    REQUIRE(paceHostStreamDestroy(stream) == paceSuccess);
  });
}

TEST_CASE("a call of no elements is where its stream says, or a buffer that it does not use") {
  testing::with_fake_driver([](const testing::FakeDriver& driver) {
    testing::FakeRange range(driver, testing::fake_granularity);
    range.map(0, testing::fake_granularity);
    std::byte on_host{};
    paceHostStream_t host_stream = nullptr;
    REQUIRE(paceHostStreamCreate(&host_stream) == paceSuccess);
    void* const legacy = reinterpret_cast<void*>(1);
    const auto there = [](const std::byte* send, std::byte* recv, void* stream) {
      Request request{.which = Collective::all_reduce, .send = send, .recv = recv};
      return *is_on_device(request, false, false, stream);
    };
    REQUIRE(there(nullptr, nullptr, legacy));
    REQUIRE(there(&on_host, &on_host, legacy));
    REQUIRE(there(range.at(0), nullptr, nullptr));
    REQUIRE(there(nullptr, range.at(0), nullptr));
    REQUIRE_FALSE(there(nullptr, nullptr, nullptr));
    REQUIRE_FALSE(there(&on_host, &on_host, nullptr));
    REQUIRE_FALSE(there(range.at(0), range.at(0), host_stream));
    REQUIRE(paceHostStreamDestroy(host_stream) == paceSuccess);
  });
}

}  // namespace
}  // namespace paceline::api
