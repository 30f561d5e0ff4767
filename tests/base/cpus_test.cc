#include "base/cpus.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

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

TEST_CASE("machine CPUs: the same for a thread that may use one") {
  const int all = machine_cpus();
  CHECK(all >= allowed_cpus());
  int found = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0) found = machine_cpus();
  }).join();
  CHECK(found == all);
}

namespace {

CpuShare share(std::initializer_list<int> cpus, double quota = INFINITY) {
  CpuShare made;
  for (int cpu : cpus) made.cpus.set(static_cast<std::size_t>(cpu));
  made.quota = quota;
  return made;
}

double together(std::vector<CpuShare> processes) { return processes_for_each_cpu(processes); }

}  // namespace

TEST_CASE("processes for each CPU: as launchers bind them") {
  CHECK(together({share({0, 1}), share({0, 1})}) == 1);
  CHECK(together({share({0}), share({1})}) == 1);  // one each
  CHECK(together({share({0}), share({0})}) == 2);  // both on one, others idle
  CHECK(together({share({0}), share({0}), share({0, 1, 2, 3})}) == 2);
  CHECK(together({share({0}), share({0, 1})}) == 1);
  CHECK(together({share({0, 1, 2, 3}), share({0, 1, 2, 3})}) == 0.5);
  CHECK(together({share({0, 1}), share({0, 1}), share({2, 3}), share({2, 3})}) == 1);  // a socket for each two
  CHECK(together({share({0, 1, 2, 3}, 1), share({0, 1, 2, 3}, 1)}) == 2);              // a container's quota
}

TEST_CASE("a thread goes home, and may run where it could before") {
  const cpu_set_t before = mask();
  for (int index = 0; index < 3; ++index) {
    HomeCpu home(index);
    CHECK(home.go() == (CPU_COUNT(&before) > 1));
    CHECK(CPU_ISSET(sched_getcpu(), &before));
    const cpu_set_t after = mask();
    CHECK(CPU_EQUAL(&before, &after));
  }
}

TEST_CASE("a thread that is bound to some CPUs is so after it went home") {
  const cpu_set_t before = mask();
  if (CPU_COUNT(&before) < 3) return;
  cpu_set_t some = before;
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &some)) --last;
  CPU_CLR(last, &some);
  REQUIRE(sched_setaffinity(0, sizeof some, &some) == 0);
  for (int index = 0; index < 3; ++index) {
    HomeCpu home(index);
    CHECK(home.go());
    const cpu_set_t after = mask();
    CHECK(CPU_EQUAL(&some, &after));
  }
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

// What the thread asked the kernel for shows only when its cpuset grows: this needs a cgroup of version 1, and to be
// root.
TEST_CASE("a thread that went home may run on the CPUs that its cpuset gets later") {
  const cpu_set_t before = mask();
  const std::filesystem::path root = "/sys/fs/cgroup/cpuset";
  const std::filesystem::path set = root / ("paceline-test-" + std::to_string(getpid()));
  std::error_code refused;
  if (CPU_COUNT(&before) < 3 || !CPU_ISSET(0, &before) || !CPU_ISSET(1, &before) || !CPU_ISSET(2, &before)) return;
  if (!std::filesystem::create_directory(set, refused)) return;
  const auto write = [&](const char* file, const std::string& what) {
    return static_cast<bool>(std::ofstream(set / file) << what << std::flush);
  };
  std::thread([&] {
    if (!write("cpuset.mems", "0") || !write("cpuset.cpus", "0-1") || !write("tasks", std::to_string(gettid()))) return;
    HomeCpu home(sched_getcpu() == 0 ? 1 : 0);
    CHECK(home.go());
    CHECK(write("cpuset.cpus", "0-2"));
    const cpu_set_t after = mask();
    CHECK(CPU_COUNT(&after) == 3);
  }).join();
  std::filesystem::remove(set, refused);
}

TEST_CASE("a thread that is bound to a CPU has nowhere to go") {
  const cpu_set_t before = mask();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  HomeCpu home(1);
  CHECK_FALSE(home.go());
  const cpu_set_t after = mask();
  CHECK(CPU_EQUAL(&one, &after));
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}
