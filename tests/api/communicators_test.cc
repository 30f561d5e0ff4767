// How communicators are made and destroyed where this process lacks what it needs, or is asked for what cannot be.
#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <latch>
#include <string_view>
#include <vector>

#include "api/address_limit.h"
#include "comm/scarce_memory.h"
#include "comm/threads.h"
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

TEST_CASE("a rank whose configuration forces what cannot be is refused before the others are waited for") {
  paceUniqueId id;
  REQUIRE(paceGetUniqueId(&id) == paceSuccess);
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  for (const char* algorithm : {"nonsense", "ring radix=3", "ring fast"}) {
    INFO(algorithm);
    config.algorithm = algorithm;
    paceComm_t comm = nullptr;
    CHECK(paceCommInitRankConfig(&comm, 2, id, 0, &config) == paceInvalidArgument);  // nobody else comes
  }
  config.algorithm = "nonsense";
  paceComm_t comm = nullptr;
  CHECK(paceCommInitRankConfig(&comm, 2, id, 0, &config) == paceInvalidArgument);
  CHECK(std::string_view(paceGetLastError(nullptr)).find("'nonsense'; there are direct, ") != std::string_view::npos);
  config.algorithm = nullptr;
  CHECK(paceCommInitRankConfig(&comm, 1, id, 0, &config) == paceSuccess);  // what it takes of the id is still there
  CHECK(paceCommDestroy(comm) == paceSuccess);
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

TEST_CASE("a communicator is destroyed, and the others know it, wherever memory lacks for that") {
  bool lacks = true;
  for (long nth = 1; lacks; ++nth) {
    INFO("allocation ", nth);
    const Ranks two(2);
    std::latch sent(1);
    std::latch destroyed(1);
    two.run([&](int rank, paceComm_t comm) -> std::string {
      int value = 1;
      if (rank == 0) {
        const paceResult_t result = paceSend(&value, 1, paceInt32, 1, comm, nullptr);
        sent.count_down();
        destroyed.wait();
        PACE_EXPECT(result);
        PACE_EXPECT(paceBarrier(comm, nullptr), paceRemoteError);
        return "";
      }
      sent.wait();
      fail_allocation(nth);
      const paceResult_t result = paceCommDestroy(comm);  // it has a message to tell of
      lacks = !spare_allocation();
      destroyed.count_down();
      PACE_REQUIRE(result == paceMismatch || (lacks && result == paceSystemError));
      PACE_EXPECT(paceCommCount(comm, &value), paceInvalidUsage);
      return "";
    });
  }
}

}  // namespace
}  // namespace paceline::testing
