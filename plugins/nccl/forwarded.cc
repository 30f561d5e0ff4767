// What NCCL does alone, in functions made from the lists of nccl_api.h: windows, one-sided messages, the device API,
// device memory, parameters.

#include <type_traits>

#include "communicator.h"
#include "errors.h"
#include "forward.h"
#include "kept_arguments.h"
#include "real_library.h"

namespace paceline::nccl {
namespace {

// Whether the call is of ncclCommWindowDeregister, without a window: NCCL does nothing then, and needs not be made.
template <class... Arguments>
bool deregisters_nothing(const Arguments&...) {
  return false;
}
bool deregisters_nothing(ncclComm* comm, ncclWindow_t window) {
  const State state = state_of(comm);
  return window == nullptr && (state == State::ready || out_of_use(state)) && comm->pace != nullptr;
}

template <class Function, class Call>
ncclResult_t of_communicator(ncclComm* comm, const char* name, Function Real::*function, Call call) {
  const State state = state_of(comm);
  if (out_of_use(state) && real_of(comm) != nullptr && real()->*function != nullptr) [[unlikely]]
    return from_real(comm, call(real()->*function, real_of(comm)));
  return forward(comm, state, name, function, call);
}

template <class Answer, class Function, class Call>
Answer plain(const char* name, Function Real::*function, Call call) {
  const Real* library = real();
  if (library == nullptr || library->*function == nullptr) return failure<Answer>(fail_to_forward(nullptr, name));
  if constexpr (std::is_same_v<Answer, ncclResult_t>)
    return from_real(nullptr, call(library->*function));
  else
    return call(library->*function);
}

}  // namespace
}  // namespace paceline::nccl

using namespace paceline::nccl;

// Of a communicator: its name in the lists is `comm`, which becomes the real one.
#define PACE_NCCL_OF_COMMUNICATOR(since, result, name, parameters, arguments)                                     \
  extern "C" result name parameters {                                                                             \
    ncclComm* const handle = comm;                                                                                \
    if (deregisters_nothing arguments) return ncclSuccess;                                                        \
    const Kept kept = keep_for_group arguments;                                                                   \
    return of_communicator(handle, #name, &Real::name, [=, kept = kept](auto function, ncclComm_t real) mutable { \
      comm = real;                                                                                                \
      return function arguments;                                                                                  \
    });                                                                                                           \
  }
PACE_NCCL_FORWARDED(PACE_NCCL_OF_COMMUNICATOR)

#define PACE_NCCL_ASKED(since, result, name, parameters, arguments)                                                \
  extern "C" result name parameters {                                                                              \
    ncclComm* const handle = comm;                                                                                 \
    return ask<result>(handle, state_of(handle), #name, &Real::name, [=](auto function, ncclComm_t real) mutable { \
      comm = real;                                                                                                 \
      return function arguments;                                                                                   \
    });                                                                                                            \
  }
PACE_NCCL_QUESTIONS(PACE_NCCL_ASKED)

#define PACE_NCCL_PLAINLY(since, result, name, parameters, arguments)                            \
  extern "C" result name parameters {                                                            \
    return plain<result>(#name, &Real::name, [&](auto function) { return function arguments; }); \
  }
PACE_NCCL_PLAIN(PACE_NCCL_PLAINLY)

PACE_NCCL_FORWARDED(PACE_NCCL_TWIN)
PACE_NCCL_QUESTIONS(PACE_NCCL_TWIN)
PACE_NCCL_PLAIN(PACE_NCCL_TWIN)
