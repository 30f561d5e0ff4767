// Other processes of this machine.
#pragma once

#include <sys/types.h>

namespace paceline {

// Whether a process has ended with all its threads, also where its parent has not asked yet how. False where the kernel
// cannot say (before 5.3).
bool has_ended(pid_t pid);

}  // namespace paceline
