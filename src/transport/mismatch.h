// The error of two ranks that called different things.
#pragma once

#include "base/call.h"
#include "base/status.h"

namespace paceline {

// Between what this rank expects and what another's message or announcement says.
Status mismatch(int my_rank, const Call& mine, int other_rank, const Call& theirs);
// The same where the other is in a later call, and has sent nothing for the one that this rank waits in.
Status passed_over(int my_rank, const Call& mine, int other_rank, const Call& theirs);

// Of a message of a call that this rank has ended the communicator without.
Status left_untaken(int my_rank, int other_rank, const Call& theirs);

}  // namespace paceline
