#include "base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace paceline {
namespace {

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

double cpus_of_cgroups() {
  double least = INFINITY;
  std::ifstream groups("/proc/self/cgroup");  // lines of hierarchy:controllers:path
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool has_cpu = controllers.empty() || ("," + controllers + ",").find(",cpu,") != std::string::npos;
    if (!has_cpu) continue;
    const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controllers;
    for (std::string path = line.substr(second + 1);; path = path.substr(0, path.rfind('/'))) {
      least = std::min(least, quota_in(root + path));
      if (path.empty() || path == "/") break;
    }
    least = std::min(least, quota_in(root));
  }
  return least;
}

}  // namespace

int allowed_cpus() {
  const double quota = cpus_of_cgroups();
  const int mask = std::max(1, count(affinity()));
  return std::isinf(quota) ? mask : std::clamp(static_cast<int>(quota), 1, mask);
}

void move_to_cpu(int index) {
  const Mask all = affinity();
  const int cpus = count(all);
  if (cpus < 2) return;
  int cpu = 0;
  for (int seen = 0; !CPU_ISSET_S(cpu, bytes(all), all.data()) || seen++ < index % cpus;) ++cpu;
  if (cpu == sched_getcpu()) return;
  Mask one(all.size());
  CPU_SET_S(cpu, bytes(one), one.data());
  if (sched_setaffinity(0, bytes(one), one.data()) != 0) return;
  (void)sched_setaffinity(0, bytes(all), all.data());
}

}  // namespace paceline
