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

int cpus_of_affinity() {
  // The kernel wants a mask as large as its own: grow until it fits.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    std::vector<cpu_set_t> mask(static_cast<std::size_t>(cpus) / (8 * sizeof(cpu_set_t)));
    const std::size_t bytes = mask.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, mask.data()) == 0) return std::max(1, CPU_COUNT_S(bytes, mask.data()));
  }
  return 1;
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
  const int mask = cpus_of_affinity();
  return std::isinf(quota) ? mask : std::clamp(static_cast<int>(quota), 1, mask);
}

}  // namespace paceline
