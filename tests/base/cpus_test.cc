#include "base/cpus.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <thread>

using namespace paceline;

namespace {

// The thread's affinity mask; tests run on machines of up to 1024 CPUs.
cpu_set_t mask() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  REQUIRE(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  return allowed;
}

}  // namespace

TEST_CASE("allowed CPUs: at least one, at most those of the affinity mask") {
  const cpu_set_t allowed = mask();
  CHECK(allowed_cpus() >= 1);
  CHECK(allowed_cpus() <= CPU_COUNT(&allowed));
}

TEST_CASE("allowed CPUs: one for a thread that may use one") {
  const cpu_set_t allowed = mask();
  int first = 0;
  while (!CPU_ISSET(first, &allowed)) ++first;
  int found = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0) found = allowed_cpus();
  }).join();
  CHECK(found == 1);
}
