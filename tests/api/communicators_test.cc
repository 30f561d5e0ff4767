// paceCommInitAll where this process lacks what it needs.
#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <vector>

#include "api/address_limit.h"
#include "paceline/paceline.h"
#include "transport/child.h"

namespace paceline::testing {
namespace {

TEST_CASE("a communicator whose ranks' threads cannot all start is an error") {
  Child child([] {
    std::vector<paceComm_t> comms(400);
    if (!limit_addresses(std::size_t{100} << 20)) return false;
    return paceCommInitAll(comms.data(), static_cast<int>(comms.size()), nullptr) != paceSuccess;
  });
  CHECK(child.ended_well());
}

TEST_CASE("communicators that cannot all be made leave no descriptor behind") {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const int devices[] = {1000, 1001};  // there are none of these numbers
  paceComm_t comms[2] = {};
  REQUIRE(paceCommInitAll(comms, 2, devices) != paceSuccess);
  const auto before = descriptors();
  for (int i = 0; i < 3; ++i) CHECK(paceCommInitAll(comms, 2, devices) != paceSuccess);
  CHECK(descriptors() == before);
}

}  // namespace
}  // namespace paceline::testing
