// Other processes of this machine.
#pragma once

#include <sys/types.h>

namespace paceline {

// Whether a process has ended with all its threads; from Linux 5.3 on also where its parent has not asked yet how.
bool has_ended(pid_t pid);

}  // namespace paceline
