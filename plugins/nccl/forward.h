// A call on its way to the real library: the handle exchanged for the real one, inside the thread's group.
#pragma once

#include <type_traits>
#include <utility>

#include "communicator.h"
#include "errors.h"
#include "group.h"
#include "real_library.h"

namespace paceline::nccl {

// Where the fast way ends: not ready, no real communicator yet, or the first such call of the thread's group.
ncclResult_t forward_later(ncclComm* comm, State state, const char* function, bool exists,
                           std::function<ncclResult_t()> call);

// call(function, real communicator), now, in the real library's group where one is open, or, where there is no real
// communicator yet, at the end of the thread's group. `state`: in which the call found it.
template <class Function, class Call>
ncclResult_t forward(ncclComm* comm, State state, const char* name, Function Real::*function, Call call) {
  const Real* library = real();
  if (state == State::ready && library != nullptr && library->*function != nullptr) [[likely]] {
    const ncclComm_t target = real_of(comm);
    Group& open = group();
    if (target != nullptr && (open.depth == 0 || open.real_open)) [[likely]] {
      if (open.depth > 0) join(open.forwarded, comm);
      return spoil_if_failed(from_real(comm, call(library->*function, target)));
    }
  }
  if (state != State::ready && is_nccls(comm) && library != nullptr && library->*function != nullptr)
    return call(library->*function, comm);
  return spoil_if_failed(
      forward_later(comm, state, name, library != nullptr && library->*function != nullptr,
                    [=]() mutable { return from_real(comm, call(real()->*function, real_of(comm))); }));
}

// For a function that returns no code: what it gives on failure is zero, and the sentence is the last error.
template <class Answer>
Answer failure(ncclResult_t result) {
  if constexpr (std::is_same_v<Answer, ncclResult_t>) return result;
  if constexpr (!std::is_void_v<Answer>) return Answer{};
}

// Why a question cannot be asked.
ncclResult_t refuse_question(ncclComm* comm, State state, const char* function, bool exists);

// call(function, real communicator), by one rank alone and at once, also inside a group: where there is no real
// communicator none is made.
template <class Answer, class Function, class Call>
Answer ask(ncclComm* comm, State state, const char* name, Function Real::*function, Call call) {
  const Real* library = real();
  const bool exists = library != nullptr && library->*function != nullptr;
  if (state != State::ready && exists && is_nccls(comm)) return call(library->*function, comm);
  const bool may_be_asked = state == State::ready || out_of_use(state);
  if (!exists || !may_be_asked || real_of(comm) == nullptr)
    return failure<Answer>(refuse_question(comm, state, name, exists));
  if constexpr (std::is_same_v<Answer, ncclResult_t>)
    return from_real(comm, call(library->*function, real_of(comm)));
  else
    return call(library->*function, real_of(comm));
}

}  // namespace paceline::nccl
