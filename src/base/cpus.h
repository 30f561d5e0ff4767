// How many CPUs this process may really use: the affinity mask, and the quota of every cgroup above it (v1 and v2).
#pragma once

namespace paceline {

// At least 1; a quota of 1.5 CPUs counts as 1.
int allowed_cpus();

}  // namespace paceline
