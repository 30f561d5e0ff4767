// paceCommInitAll where this process lacks what it needs.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "paceline/paceline.h"
#include "transport/child.h"

namespace paceline::testing {
namespace {

// As where a container limits the memory or the threads.
bool limit_addresses(std::size_t more_bytes) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlimit limit{pages * static_cast<std::size_t>(getpagesize()) + more_bytes, RLIM_INFINITY};
  return pages != 0 && setrlimit(RLIMIT_AS, &limit) == 0;
}

TEST_CASE("a communicator whose ranks' threads cannot all start is an error") {
  Child child([] {
    std::vector<paceComm_t> comms(400);
    if (!limit_addresses(std::size_t{100} << 20)) return false;
    return paceCommInitAll(comms.data(), static_cast<int>(comms.size()), nullptr) != paceSuccess;
  });
  CHECK(child.ended_well());
}

}  // namespace
}  // namespace paceline::testing
