// How many CPUs this process may really use: the affinity mask, and the quota of every cgroup above it (v1 and v2).
#pragma once

namespace paceline {

// At least 1; a quota of 1.5 CPUs counts as 1.
int allowed_cpus();

// Move the calling thread to the index-th CPU (from 0, modulo their number) of those that it may run on, unless it is
// there. It stays free to be moved on. For ranks that find themselves on one CPU while others are idle, where each
// waits for the other: the kernel takes tens of milliseconds to part them.
void move_to_cpu(int index);

}  // namespace paceline
