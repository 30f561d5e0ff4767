// Which CPUs processes may really use: the affinity mask, and the quota of every cgroup above (v1 and v2).
#pragma once

#include <sched.h>

#include <bitset>
#include <chrono>
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

// The CPU where a rank belongs: the index-th (from 0, modulo their number) of those that its thread may run on. The
// kernel takes tens of milliseconds to part ranks that are on one CPU while others are idle, where each waits for the
// other; and with more ranks than CPUs it may leave three on one and one on the other as long as they run.
class HomeCpu {
 public:
  explicit HomeCpu(int index = 0) : index_(index) {}
  // Move the calling thread there, unless it is there or was moved less than a millisecond ago. It stays free to be
  // moved on. False: it is bound to the CPU it is on.
  bool go();

 private:
  int index_;
  int cpu_ = -1;  // its number, when it was last moved to
  std::chrono::steady_clock::time_point next_;
};

}  // namespace paceline
