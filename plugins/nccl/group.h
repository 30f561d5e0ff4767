// A thread's open group: what ncclGroupStart and ncclGroupEnd hold together.
//
// Paceline's group and the real library's are each opened by the first call that goes there. Calls for a real
// communicator that is not made yet, and the making of communicators of Paceline's, wait for the end: there one thread
// may act for several ranks. As in NCCL a group with a call that was refused runs none of them.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "communicator.h"
#include "errors.h"
#include "nccl_api.h"

namespace paceline::nccl {

// The making of a communicator, which waits for other ranks.
struct Birth {
  std::function<ncclResult_t()> make;
  std::function<void()> drop;  // it failed, or is given up: what it still gets is put away
};

struct Deferred {
  ncclComm* comm;
  const char* function;
  bool exists;  // in this process's real library
  std::function<ncclResult_t()> call;
};

struct Group {
  int depth = 0;
  bool paceline_open = false;
  bool real_open = false;
  ncclResult_t error = ncclSuccess;  // of the first call that failed
  std::vector<ncclComm*> served;     // by Paceline, one after another: one may be there twice
  std::vector<ncclComm*> forwarded;  // likewise those of the real library's calls
  std::vector<Birth> births;
  std::vector<std::function<ncclResult_t()>> makers;
  std::vector<std::function<void(ncclResult_t)>> drops;  // what becomes of communicators where the group does not run
  std::vector<Deferred> deferred;
  std::vector<std::function<ncclResult_t()>> endings;  // after everything else
};

// This thread's.
Group& group();

// What a call that a group may hold ends with: an error spoils this thread's group, if one is open.
inline ncclResult_t spoil_if_failed(ncclResult_t result) {
  if (is_error(result) && group().depth > 0) [[unlikely]]
    group().error = worse(group().error, result);
  return result;
}

// Whether this thread's group has calls for the communicator that wait for its end.
bool waits_for_real(const ncclComm* comm);

// The communicator of a call is one of the group's: its errors are theirs.
inline void join(std::vector<ncclComm*>& comms, ncclComm* comm) {
  if (comms.empty() || comms.back() != comm) comms.push_back(comm);
}
// Before a call of paceline.h or of the real library: inside a group theirs is open too.
ncclResult_t join_paceline_group(ncclComm* comm);
ncclResult_t join_real_group(ncclComm* comm);

// Make a communicator of Paceline's: at the group's end, or at once. As in NCCL no group makes blocking and nonblocking
// ones, and where one cannot be made, those that still wait for other ranks are given up.
ncclResult_t give_birth(Birth birth);
// Start a thread that makes one: after the group's calls, which may be of its parent too.
ncclResult_t start_making(std::function<ncclResult_t()> start);
// What to do, with the group's error, if the group ends without running its calls.
void if_dropped(std::function<void(ncclResult_t)> drop);

// Now, or when the group's calls are done: then the group ends with its result.
ncclResult_t end_later(std::function<ncclResult_t()> ending);

ncclResult_t start_group();
ncclResult_t end_group();
// End the group without running its calls; of NCCL's it tells the time.
ncclResult_t simulate_group(ncclSimInfo_t* info);

}  // namespace paceline::nccl
