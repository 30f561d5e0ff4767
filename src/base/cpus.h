// Which CPUs processes may really use: the affinity mask, and the quota of every cgroup above (v1 and v2).
#pragma once

#include <sched.h>

#include <bitset>
#include <span>

namespace paceline {

// What one process may use. CPUs by their numbers, from 1024 on modulo 1024.
struct CpuShare {
  std::bitset<1024> cpus;
  double quota = 0;  // how many at a time
};
CpuShare own_cpu_share();

// How many of these processes of one machine come to one CPU, at the busiest ones: above 1 they have to take turns.
// Launchers give each process CPUs of its own, or all of them the same.
double processes_for_each_cpu(std::span<const CpuShare> processes);

// Of this process: at least 1; a quota of 1.5 CPUs counts as 1.
int allowed_cpus();

// Of the machine, or of the container: what no process of it can exceed, wherever a launcher has bound this one.
int machine_cpus();

// Bytes of the third-level cache that each of the CPUs sharing it has if all use it alike; 0: unknown.
std::size_t shared_cache_of_one_cpu();

// Move the calling thread to the index-th CPU (from 0, modulo their number) of those that it may run on, unless it is
// there. It stays free to be moved on. For ranks that find themselves on one CPU while others are idle, where each
// waits for the other: the kernel takes tens of milliseconds to part them. False: it is bound to the CPU it is on.
bool move_to_cpu(int index);

// While it lives the calling thread stays on the index-th CPU (as above); then it is as free as before. On machines of
// more than 1024 CPUs it does nothing.
class StayOnCpu {
 public:
  explicit StayOnCpu(int index);
  ~StayOnCpu();
  StayOnCpu(const StayOnCpu&) = delete;
  StayOnCpu& operator=(const StayOnCpu&) = delete;

 private:
  bool stays_ = false;
  cpu_set_t before_{};
};

}  // namespace paceline
