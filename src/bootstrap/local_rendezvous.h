// How the ranks of one node meet without being told where: rank 0 writes address, port and a new secret into a file
// that only this user can read, named for the job.
#pragma once

#include <string>

#include "base/status.h"
#include "bootstrap/session.h"

namespace paceline {

// `job` as in Launch. Rank 0 listens on `address` (numeric); the others wait for its file, and for what it says to be
// true: a job that crashed may have left one. The file goes with the Rendezvous' `held`. `timeout`: seconds, for the
// whole of the joining; the Rendezvous has what is left of it.
Result<Rendezvous> meet_on_this_node(const std::string& job, int rank, int size, const std::string& address,
                                     double timeout);

}  // namespace paceline
