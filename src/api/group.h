// A group's calls, from the end of the group to theirs.
//
// device_group.cc has the whole group and its calls on GPU memory, host_group.cc those on host memory, which run now or
// on streams.
#pragma once

#include <vector>

#include "api/handle.h"

namespace paceline::api {

// A call on host memory.
struct Queued {
  paceComm* comm;
  Request request;
  HostStream* stream;  // nullptr: none
};

// A call on GPU memory, and its cudaStream_t.
struct OnDevice {
  paceComm* comm;
  Request request;
  void* stream;
};

// The others learn that this rank's group is broken off; also where another thread destroys the communicator.
inline void break_off_group(paceComm* comm, const Status& cause, bool here) {
  (void)beside_calls(comm, [&](Communicator& communicator) { communicator.break_off_group(cause, here); });
}

// Queue calls that run together when the stream comes to them.
void queue(HostStream& stream, std::vector<Queued> calls);

// Calls by the stream that they are for; those without one run here, last, so that nothing waits for them.
// any_begun: others of the group, on GPU memory.
Status run_on_host(std::vector<Queued> calls, bool any_begun);

// This thread's group: opened, once more where one is open, and ended.
Status start_group();
Status end_group();
// A call of the open group, if there is one, was refused: the group starts nothing.
void spoil_group(const Status& status);

// The calls of a group, at its end.
Status run_group(std::vector<Queued> calls, std::vector<OnDevice> device_calls);

}  // namespace paceline::api
