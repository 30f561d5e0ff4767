#include "base/cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <istream>
#include <string>
#include <vector>

namespace paceline {
namespace {

// How soon after one move home a thread may make the next.
constexpr std::chrono::milliseconds between_moves{1};

// Empty where the kernel does not tell.
using Mask = std::vector<cpu_set_t>;

std::size_t bytes(const Mask& mask) { return mask.size() * sizeof(cpu_set_t); }

Mask affinity() {
  // The kernel wants a mask as large as its own: grow until it fits.
  for (std::size_t sets = 1; sets <= 1024; sets *= 2) {
    Mask mask(sets);
    if (sched_getaffinity(0, bytes(mask), mask.data()) == 0) return mask;
  }
  return {};
}

int count(const Mask& mask) { return CPU_COUNT_S(bytes(mask), mask.data()); }

// Lets the thread run where it could before it was moved. The kernel keeps what a thread asks for, also when the cpuset
// grows, so a thread that may use all of its cpuset's CPUs asks for all there are: the kernel leaves those of the set.
void free_again(const Mask& before) {
  Mask all(before.size());
  std::memset(all.data(), 0xff, bytes(all));
  if (sched_setaffinity(0, bytes(all), all.data()) == 0) {
    const Mask now = affinity();
    if (now.size() == before.size() && CPU_EQUAL_S(bytes(now), now.data(), before.data())) return;
  }
  (void)sched_setaffinity(0, bytes(before), before.data());
}

// The CPU that has so many others of the mask before it; there must be one.
int nth(const Mask& mask, int index) {
  int cpu = 0;
  for (int seen = 0; !CPU_ISSET_S(cpu, bytes(mask), mask.data()) || seen++ < index;) ++cpu;
  return cpu;
}

// The quota that one cgroup directory sets, in CPUs; infinity where it sets none.
double quota_in(const std::string& directory) {
  double quota = 0;
  double period = 0;
  std::string first;
  if (std::ifstream v2(directory + "/cpu.max"); v2 >> first >> period && first != "max" && period > 0)
    return std::stod(first) / period;
  std::ifstream v1_quota(directory + "/cpu.cfs_quota_us");
  std::ifstream v1_period(directory + "/cpu.cfs_period_us");
  if (v1_quota >> quota && v1_period >> period && quota > 0 && period > 0) return quota / period;
  return INFINITY;
}

// How many CPUs a list like "0-3,8" has; 0 where there is none.
int length_of_list(std::istream& list) {
  int length = 0;
  for (std::string range; std::getline(list, range, ',');) {
    int first = 0;
    int last = 0;
    const int found = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (found > 0) length += found == 1 ? 1 : last - first + 1;
  }
  return length;
}

// The CPUs on which one cgroup directory lets its processes run; infinity where it does not say.
double set_in(const std::string& directory) {
  for (const char* name : {"/cpuset.cpus.effective", "/cpuset.effective_cpus"}) {
    std::ifstream list(directory + name);
    if (const int length = length_of_list(list); length > 0) return length;
  }
  return INFINITY;
}

// The least that any cgroup above this process has of what `limit` finds in its directory.
double least_of_cgroups(const char* controller, double (*limit)(const std::string& directory)) {
  double least = INFINITY;
  std::ifstream groups("/proc/self/cgroup");  // lines of hierarchy:controllers:path
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool has_it = ("," + controllers + ",").find(std::string(",") + controller + ",") != std::string::npos;
    if (!controllers.empty() && !has_it) continue;
    const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controllers;
    for (std::string path = line.substr(second + 1);; path = path.substr(0, path.rfind('/'))) {
      least = std::min(least, limit(root + path));
      if (path.empty() || path == "/") break;
    }
    least = std::min(least, limit(root));
  }
  return least;
}

}  // namespace

CpuShare own_cpu_share() {
  CpuShare share;
  const Mask all = affinity();
  for (std::size_t cpu = 0; cpu < 8 * bytes(all); ++cpu)
    if (CPU_ISSET_S(cpu, bytes(all), all.data())) share.cpus.set(cpu % share.cpus.size());
  if (all.empty()) share.cpus.set(0);
  share.quota = std::max(1.0, std::floor(least_of_cgroups("cpu", quota_in)));
  return share;
}

double processes_for_each_cpu(std::span<const CpuShare> processes) {
  CpuShare together;
  double busiest = 0;
  for (const CpuShare& one : processes) {
    together.cpus |= one.cpus;
    together.quota = std::max(together.quota, one.quota);  // they may share one quota
    const auto beside =
        std::ranges::count_if(processes, [&](const CpuShare& other) { return (other.cpus & ~one.cpus).none(); });
    busiest = std::max(busiest, static_cast<double>(beside) / static_cast<double>(one.cpus.count()));
  }
  const double cpus = std::min(static_cast<double>(together.cpus.count()), together.quota);
  return std::max(busiest, static_cast<double>(processes.size()) / cpus);
}

int allowed_cpus() {
  const CpuShare share = own_cpu_share();
  return static_cast<int>(std::min(static_cast<double>(share.cpus.count()), share.quota));
}

int machine_cpus() {
  const double there = std::max(1.0, static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)));
  const double limits = std::min(least_of_cgroups("cpu", quota_in), least_of_cgroups("cpuset", set_in));
  return static_cast<int>(std::clamp(limits, 1.0, there));
}

std::size_t shared_cache_of_one_cpu() {
  for (int index = 0; index < 10; ++index) {
    const std::string cache = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    int level = 0;
    std::size_t kib = 0;
    std::ifstream(cache + "/level") >> level;
    if (level != 3 || !(std::ifstream(cache + "/size") >> kib)) continue;  // "32768K"
    std::ifstream sharers(cache + "/shared_cpu_list");
    return kib * 1024 / static_cast<std::size_t>(std::max(1, length_of_list(sharers)));
  }
  return 0;
}

bool HomeCpu::go() {
  if (sched_getcpu() == cpu_) return true;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return true;
  next_ = now + between_moves;
  const Mask all = affinity();
  const int cpus = count(all);
  if (cpus < 2) return false;
  cpu_ = nth(all, index_ % cpus);
  if (cpu_ == sched_getcpu()) return true;
  Mask one(all.size());
  CPU_SET_S(cpu_, bytes(one), one.data());
  if (sched_setaffinity(0, bytes(one), one.data()) == 0) free_again(all);
  return true;
}

}  // namespace paceline
