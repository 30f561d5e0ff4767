// A call on its way to the real library: the handle exchanged for the real one, inside the thread's group.
#pragma once

#include <utility>

#include "communicator.h"
#include "errors.h"
#include "group.h"
#include "real_library.h"

namespace paceline::nccl {

// Where the fast way ends: not ready, no real communicator yet, or calls of the group that wait for one.
ncclResult_t forward_later(ncclComm* comm, State state, const char* function, bool exists,
                           std::function<ncclResult_t()> call);

// call(function, real communicator), now or at the end of the thread's group. `state`: in which the call found it.
template <class Function, class Call>
ncclResult_t forward(ncclComm* comm, State state, const char* name, Function Real::*function, Call call) {
  const Real* library = real();
  if (state == State::ready && library != nullptr && library->*function != nullptr) [[likely]] {
    const ncclComm_t target = real_of(comm);
    const Group& open = group();
    if (target != nullptr && (open.depth == 0 || (open.real_open && open.deferred.empty()))) [[likely]]
      return spoil_if_failed(from_real(comm, call(library->*function, target)));
  }
  if (state != State::ready && is_nccls(comm) && library != nullptr && library->*function != nullptr)
    return call(library->*function, comm);
  return spoil_if_failed(
      forward_later(comm, state, name, library != nullptr && library->*function != nullptr,
                    [=]() mutable { return from_real(comm, call(real()->*function, real_of(comm))); }));
}

}  // namespace paceline::nccl
