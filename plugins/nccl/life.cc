// NCCL's functions about a communicator that is there: its end, its state, its operators and registrations.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>

#include "communicator.h"
#include "errors.h"
#include "forward.h"
#include "real_library.h"
#include "threads.h"

namespace paceline::nccl {
namespace {

bool is_gone(State state) { return state != State::ready && (state < State::making || state >= State::destroyed); }

// The state in which an end finds the communicator, and whether it may be ended.
struct Found {
  State state;
  bool taken;
};

// Not: it is gone, or another thread destroys it, or it is still at work for a making of its own or of a child, which
// only an abort ends.
Found take_to_destroy(ncclComm* comm) {
  State state = state_of(comm);
  // In a forked child the lock may be another thread's of the parent for ever: only a revoked one needs it here.
  if (state == State::revoked) {
    const std::lock_guard lock(comm->mutex);
    if (!comm->unborn.empty()) return {State::splitting, false};
  }
  do {
    if (is_gone(state) || state == State::destroying) return {state, false};
    if (state == State::making || state == State::splitting) return {state, false};
    // Acquire: what was made comes before its end. The release orders nothing more.
  } while (!comm->state.compare_exchange_weak(state, State::destroying, std::memory_order_acq_rel));
  return {state, true};
}

// Not: it is gone, or NCCL destroys it.
Found take_to_abort(ncclComm* comm) {
  const std::lock_guard lock(comm->mutex);  // which a making takes to end, and a destroy to be refused
  State state = state_of(comm);
  State left = State::destroyed;
  do {
    if (is_gone(state) || (state == State::destroying && comm->pace == nullptr)) return {state, false};
    left = state == State::destroying ? state : State::destroyed;
    // Acquire: what was made comes before its end. The release orders nothing more: `unwanted` is under the lock.
  } while (!comm->state.compare_exchange_weak(state, left, std::memory_order_acq_rel));
  comm->unwanted = true;
  return {state, true};
}

// The end of the real communicator, where there is one.
ncclResult_t destroy_real(ncclComm* comm) {
  const ncclComm_t target = real_of(comm);
  return target == nullptr ? ncclSuccess : from_real(comm, real()->ncclCommDestroy(target));
}

// Free an aborted communicator. GPU memory is freed only when no kernel runs on the GPU, and a program may abort its
// next communicator only after this one: an abort waits for it no longer than this. Where there is no thread for it,
// the memory stays.
void free_in_time(ncclComm* comm) {
  using namespace std::chrono_literals;
  constexpr std::chrono::seconds patience{3};
  std::packaged_task<void()> freeing([comm] {
    const auto deadline = std::chrono::steady_clock::now() + 1min;
    {
      // The makings of its children learn of the abort from it, also those that are just about to begin.
      std::unique_lock lock(comm->mutex);
      const auto none_unborn = [&] { return comm->unborn.empty(); };
      while (!comm->one_born.wait_for(lock, 100ms, none_unborn) && std::chrono::steady_clock::now() < deadline)
        (void)paceCommAbort(comm->pace);
    }
    // Refused while another thread is inside a call, which ends now.
    while (paceCommDestroy(comm->pace) == paceInvalidUsage && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(1ms);
  });
  const std::future<void> freed = freeing.get_future();
  std::thread thread = start_thread(std::move(freeing));
  if (!thread.joinable()) return;
  thread.detach();
  (void)freed.wait_for(patience);
}

// The rest of an abort, which Paceline's communicator knows of.
ncclResult_t end_aborted(ncclComm* comm) {
  ncclResult_t result = real_of(comm) == nullptr ? ncclSuccess : join_real_group(comm);
  if (const ncclComm_t target = take_real(comm); target != nullptr)
    result = worse(result, from_real(comm, real()->ncclCommAbort(target)));
  // Programs abort all their communicators in one group: each is told to end before the first is freed.
  if (comm->pace != nullptr)
    (void)end_later([comm] {
      free_in_time(comm);
      return ncclSuccess;
    });
  return result;
}

// A destroy that is refused leaves the communicator in the state before, so that it can still be aborted: if it was not
// meanwhile.
ncclResult_t refuse_destroy(ncclComm* comm, State before, ncclResult_t why) {
  {
    const std::lock_guard lock(comm->mutex);
    // Release: pairs with state_of(), as a making's end does.
    comm->state.store(comm->unwanted ? State::destroyed : before, std::memory_order_release);
    if (!comm->unwanted) return why;
  }
  return end_aborted(comm);
}

// Until the calls that the communicator still has, on host streams and on GPUs, have ended.
void wait_for_calls(ncclComm* comm) {
  std::uint64_t unused = 0;
  (void)paceCommGpuDirectCalls(comm->pace, &unused);  // what it counts is of no use here
}

// The same after the group's calls; of a nonblocking communicator behind the program's back, if there is a thread.
// `beside`: what became of the real communicator.
ncclResult_t wait_for_calls_later(ncclComm* comm, ncclResult_t beside) {
  const ncclResult_t result = end_later([comm, beside] {
    comm->finalizing.store(true, std::memory_order_relaxed);  // for this thread
    const auto wait = [comm] {
      wait_for_calls(comm);
      comm->finalizing.store(false, std::memory_order_release);  // after what the calls wrote
    };
    std::thread thread;
    if (comm->config.nonblocking()) thread = start_thread(wait);
    if (thread.joinable())
      thread.detach();  // nobody waits for it: its last act tells
    else
      wait();
    return comm->config.nonblocking() ? worse(beside, ncclInProgress) : beside;
  });
  return is_error(beside) ? beside : result;
}

// A thread that waits for the communicator's calls is inside it until they have ended, and one whose call a revocation
// ends until that has returned.
paceResult_t destroy_when_left(ncclComm* comm, State before) {
  const auto returned = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (;;) {
    const bool finalizing = comm->finalizing.load(std::memory_order_acquire);  // before the try: as it has come to be
    const bool returns = before == State::revoked && std::chrono::steady_clock::now() < returned;
    const paceResult_t left = paceCommDestroy(comm->pace);
    if (left != paceInvalidUsage || !(finalizing || returns)) return left;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A communicator that Paceline serves goes from one state to another. Acquire: what was made, or the change before,
// comes before what follows. Release: and that before the next change.
ncclResult_t change(ncclComm* comm, const char* function, State from, State to) {
  if (comm == nullptr || !comm->state.compare_exchange_strong(from, to, std::memory_order_acq_rel))
    return spoil_if_failed(refuse(comm, from, function));
  return ncclSuccess;
}

bool only_nccl(const ncclComm* comm, State state) { return state != State::ready || comm->pace == nullptr; }

// Whether the communicator's size, rank and device are known here: one that takes no more calls still has them.
bool answers_here(const ncclComm* comm, State state) {
  return (state == State::ready || out_of_use(state)) && comm->pace != nullptr;
}
// The same for what is registered with it, and its operators: they come and go also while others are made from it.
bool keeps_here(const ncclComm* comm, State state) { return state == State::splitting || answers_here(comm, state); }

std::size_t size_of(ncclDataType_t type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

// One that no other communicator's operator has, nor one that was destroyed: where it does not belong it is refused.
int next_operator() {
  constexpr unsigned numbers = ncclMaxRedOp - ncclNumOps;
  static std::atomic<unsigned> made{0};
  // Relaxed: only the number counts.
  return ncclNumOps + static_cast<int>(made.fetch_add(1, std::memory_order_relaxed) % numbers);
}

ncclResult_t create_operator(ncclRedOp_t* op, const void* scalar, ncclDataType_t type, ncclScalarResidence_t residence,
                             ncclComm* comm) {
  if (op == nullptr || scalar == nullptr || type < 0 || type >= ncclNumTypes)
    return fail(comm, ncclInvalidArgument, "ncclRedOpCreatePreMulSum: the operator, the scalar or its type is none");
  Operator made;
  made.residence = residence;
  made.type = type;
  if (residence == ncclScalarHostImmediate) {
    std::memcpy(made.scalar.data(), scalar, size_of(type));
    if (paceResult_t result =
            paceRedOpCreatePreMulSum(&made.pace, scalar, static_cast<paceDataType_t>(type), comm->pace);
        result != paceSuccess)
      return failed_in_paceline(comm, result);
  } else {
    made.device_scalar = const_cast<void*>(scalar);
  }
  const std::lock_guard lock(comm->mutex);
  int number = next_operator();
  while (!comm->operators.try_emplace(number, made).second) number = next_operator();  // after 2^31 of them
  *op = static_cast<ncclRedOp_t>(number);
  return ncclSuccess;
}

ncclResult_t destroy_operator(ncclRedOp_t op, ncclComm* comm) {
  const auto taken = [&] {
    const std::lock_guard lock(comm->mutex);
    return comm->operators.extract(static_cast<int>(op));
  }();
  if (taken.empty())
    return fail(comm, ncclInvalidArgument,
                fmt::format("ncclRedOpDestroy: there is no operation {} to destroy", static_cast<int>(op)));
  const Operator& ended = taken.mapped();
  if (ended.real >= 0) (void)real()->ncclRedOpDestroy(static_cast<ncclRedOp_t>(ended.real), real_of(comm));
  if (ended.residence == ncclScalarHostImmediate) (void)paceRedOpDestroy(ended.pace, comm->pace);
  return ncclSuccess;
}

// A registration of a communicator that Paceline serves; its buffers need none, NCCL's do.
struct Registration {
  void* real = nullptr;
};

}  // namespace
}  // namespace paceline::nccl

using namespace paceline::nccl;

extern "C" {

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;  // as NCCL does
  const State state = state_of(comm);
  if (out_of_use(state) && comm->pace != nullptr)
    return spoil_if_failed(refuse(comm, state, "ncclCommFinalize", ncclInvalidArgument));  // as NCCL does
  if (only_nccl(comm, state))
    return forward(comm, state, "ncclCommFinalize", &Real::ncclCommFinalize,
                   [](auto function, ncclComm_t real) { return function(real); });
  if (ncclResult_t changed = change(comm, "ncclCommFinalize", State::ready, State::finalized); changed != ncclSuccess)
    return changed;
  const ncclResult_t beside =
      real_of(comm) == nullptr ? ncclSuccess : from_real(comm, real()->ncclCommFinalize(real_of(comm)));
  if (comm->config.nonblocking() || group().depth > 0) return wait_for_calls_later(comm, beside);
  wait_for_calls(comm);
  const paceResult_t trouble = trouble_of(comm);
  return trouble == paceSuccess ? beside : failed_in_paceline(comm, trouble);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;  // as NCCL does
  const auto [before, taken] = take_to_destroy(comm);
  if (!taken) return refuse(comm, before, "ncclCommDestroy");
  ncclResult_t result = ncclSuccess;
  if (comm->pace != nullptr) {
    const paceResult_t left = destroy_when_left(comm, before);
    if (left != paceSuccess) result = failed_in_paceline(comm, left);
    if (left == paceInvalidUsage) return refuse_destroy(comm, before, result);
    result = worse(result, destroy_real(comm));
  } else if (real_of(comm) != nullptr) {
    // A communicator that NCCL serves alone ends within the thread's group.
    if (ncclResult_t joined = join_real_group(comm); joined != ncclSuccess) return refuse_destroy(comm, before, joined);
    result = destroy_real(comm);
    if (is_error(result) && group().depth == 0) return refuse_destroy(comm, before, result);
  }
  // Release: the end of the communicators behind it comes before.
  comm->state.store(State::destroyed, std::memory_order_release);
  return result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const auto [before, taken] = take_to_abort(comm);
  if (!taken) return refuse(comm, before, "ncclCommAbort");
  if (before == State::making) return ncclSuccess;  // its thread waits for other ranks, and puts away what it gets
  if (before == State::destroying) {
    // The calls that the other thread waits for end. Or it has waited for them, and may be in NCCL.
    if (paceCommAbort(comm->pace) != paceSuccess && real_of(comm) != nullptr)
      return refuse(comm, before, "ncclCommAbort");
    return ncclSuccess;
  }
  ncclResult_t result = ncclSuccess;
  if (comm->pace != nullptr)
    if (paceResult_t ended = paceCommAbort(comm->pace); ended != paceSuccess) result = failed_in_paceline(comm, ended);
  return worse(result, end_aborted(comm));
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  if (comm == nullptr) return ncclSuccess;  // as NCCL does
  const State state = state_of(comm);
  if (out_of_use(state) && comm->pace != nullptr)
    return spoil_if_failed(refuse(comm, state, "ncclCommRevoke", ncclInvalidArgument));  // as NCCL does
  if (only_nccl(comm, state))
    return forward(comm, state, "ncclCommRevoke", &Real::ncclCommRevoke,
                   [=](auto function, ncclComm_t real) { return function(real, flags); });
  if (flags != NCCL_REVOKE_DEFAULT)
    return fail(comm, ncclInvalidArgument, fmt::format("ncclCommRevoke: there are no flags {}", flags));
  if (ncclResult_t changed = change(comm, "ncclCommRevoke", State::ready, State::revoked); changed != ncclSuccess)
    return changed;
  ncclResult_t result = ncclSuccess;
  if (paceResult_t ended = paceCommAbort(comm->pace); ended != paceSuccess) result = failed_in_paceline(comm, ended);
  if (real_of(comm) != nullptr && real()->ncclCommRevoke != nullptr)
    result = worse(result, from_real(comm, real()->ncclCommRevoke(real_of(comm), flags)));
  return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr || error == nullptr)
    return fail(nullptr, ncclInvalidArgument, "ncclCommGetAsyncError: the communicator or the result pointer is NULL");
  State state = state_of(comm);
  if (state != State::ready && is_nccls(comm))
    return forward(comm, state, "ncclCommGetAsyncError", &Real::ncclCommGetAsyncError,
                   [=](auto function, ncclComm_t real) { return function(real, error); });
  bool ends = false, makes = false;
  ncclResult_t making = ncclSuccess;
  {
    // The lock: who learns that a parent is ready may use its child, too.
    const std::lock_guard lock(comm->mutex);
    state = state_of(comm);
    ends =
        std::any_of(comm->unborn.begin(), comm->unborn.end(), [](const ncclComm* child) { return child->ends_parent; });
    makes = std::any_of(comm->unborn.begin(), comm->unborn.end(), is_made_behind);
    making = comm->result;
  }
  if (state == State::making || state == State::failed) {
    *error = making;
    return ncclSuccess;
  }
  if (state == State::destroying || state == State::destroyed) return refuse(comm, state, "ncclCommGetAsyncError");
  // Acquire: what its calls wrote, and their errors, come before.
  const bool finalizing = comm->finalizing.load(std::memory_order_acquire);
  *error = ncclSuccess;
  // What a shrink ends is no trouble: another rank's may be done before ours.
  if (comm->pace != nullptr && state != State::revoked && !ends) {
    paceResult_t trouble = paceSuccess;
    if (paceResult_t asked = paceCommGetAsyncError(comm->pace, &trouble); asked != paceSuccess)
      return failed_in_paceline(comm, asked);
    if (trouble != paceSuccess) *error = failed_in_paceline(comm, trouble);
  }
  if (*error == ncclSuccess && is_error(making)) *error = making;
  if (*error != ncclSuccess) return ncclSuccess;
  if (makes || finalizing) {
    *error = ncclInProgress;
    return ncclSuccess;
  }
  if (real_of(comm) != nullptr) {
    const ncclResult_t asked = from_real(comm, real()->ncclCommGetAsyncError(real_of(comm), error));
    if (!is_error(asked)) (void)from_real(comm, *error);  // its sentence, too, is the last one
    return asked;
  }
  if (comm->pace == nullptr) *error = ncclInProgress;  // NCCL has not written the communicator yet
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const State state = state_of(comm);
  if (!answers_here(comm, state))
    return forward(comm, state, "ncclCommCount", &Real::ncclCommCount,
                   [=](auto function, ncclComm_t real) { return function(real, count); });
  if (count == nullptr) return missing(comm, "ncclCommCount", "count");
  *count = comm->ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const State state = state_of(comm);
  if (!answers_here(comm, state))
    return forward(comm, state, "ncclCommUserRank", &Real::ncclCommUserRank,
                   [=](auto function, ncclComm_t real) { return function(real, rank); });
  if (rank == nullptr) return missing(comm, "ncclCommUserRank", "rank");
  *rank = comm->rank;
  return ncclSuccess;
}

ncclTeam_t ncclTeamWorld(ncclComm_t comm) {
  const State state = state_of(comm);
  if (answers_here(comm, state)) return {comm->ranks, comm->rank, 1};
  return ask<ncclTeam_t>(comm, state, "ncclTeamWorld", &Real::ncclTeamWorld,
                         [](auto function, ncclComm_t real) { return function(real); });
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  const State state = state_of(comm);
  if (!answers_here(comm, state))
    return forward(comm, state, "ncclCommCuDevice", &Real::ncclCommCuDevice,
                   [=](auto function, ncclComm_t real) { return function(real, device); });
  if (device == nullptr) return missing(comm, "ncclCommCuDevice", "device");
  if (comm->device.device() < 0)
    return fail(comm, ncclInvalidUsage, "ncclCommCuDevice: no CUDA device was current when the communicator was made");
  *device = comm->device.device();
  return ncclSuccess;
}

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  const State state = state_of(comm);
  if (only_nccl(comm, state))
    return forward(comm, state, "ncclCommSuspend", &Real::ncclCommSuspend,
                   [=](auto function, ncclComm_t real) { return function(real, flags); });
  if (real_of(comm) != nullptr && real()->ncclCommSuspend != nullptr)
    if (ncclResult_t beside = from_real(comm, real()->ncclCommSuspend(real_of(comm), flags)); is_error(beside))
      return beside;
  return change(comm, "ncclCommSuspend", State::ready, State::suspended);
}

ncclResult_t ncclCommResume(ncclComm_t comm) {
  const State state = state_of(comm);
  if (comm != nullptr && comm->pace == nullptr)
    return forward(comm, state, "ncclCommResume", &Real::ncclCommResume,
                   [](auto function, ncclComm_t real) { return function(real); });
  if (state == State::suspended && real_of(comm) != nullptr && real()->ncclCommResume != nullptr)
    if (ncclResult_t beside = from_real(comm, real()->ncclCommResume(real_of(comm))); is_error(beside)) return beside;
  return change(comm, "ncclCommResume", State::suspended, State::ready);
}

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value) {
  const bool here = comm != nullptr && comm->pace != nullptr && real_of(comm) == nullptr;
  const State state = state_of(comm);
  if (!here || (state != State::ready && state != State::suspended))
    return forward(comm, state, "ncclCommMemStats", &Real::ncclCommMemStats,
                   [=](auto function, ncclComm_t real) { return function(real, stat, value); });
  if (value == nullptr) return missing(comm, "ncclCommMemStats", "value");
  switch (stat) {
    case ncclStatGpuMemSuspend: *value = 0; return ncclSuccess;
    case ncclStatGpuMemSuspended: *value = state == State::suspended ? 1 : 0; return ncclSuccess;
    default: return fail(comm, ncclInvalidUsage, "ncclCommMemStats: Paceline does not count its GPU memory");
  }
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* buffer, size_t bytes, void** handle) {
  const State state = state_of(comm);
  if (!keeps_here(comm, state))
    return forward(comm, state, "ncclCommRegister", &Real::ncclCommRegister,
                   [=](auto function, ncclComm_t real) { return function(real, buffer, bytes, handle); });
  if (handle == nullptr) return missing(comm, "ncclCommRegister", "handle");
  auto made = std::make_unique<Registration>();
  if (real_of(comm) != nullptr && real()->ncclCommRegister != nullptr)
    if (ncclResult_t result = from_real(comm, real()->ncclCommRegister(real_of(comm), buffer, bytes, &made->real));
        result != ncclSuccess)
      return result;
  const std::lock_guard lock(comm->mutex);
  comm->registrations.insert(made.get());
  *handle = made.release();
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const State state = state_of(comm);
  if (!keeps_here(comm, state))
    return forward(comm, state, "ncclCommDeregister", &Real::ncclCommDeregister,
                   [=](auto function, ncclComm_t real) { return function(real, handle); });
  if (handle == nullptr) return ncclSuccess;  // as NCCL does
  {
    const std::lock_guard lock(comm->mutex);
    if (comm->registrations.erase(handle) == 0) handle = nullptr;
  }
  if (handle == nullptr)
    return fail(comm, ncclInvalidArgument, "ncclCommDeregister: the handle is none of this communicator's");
  const std::unique_ptr<Registration> ended(static_cast<Registration*>(handle));
  if (ended->real == nullptr) return ncclSuccess;
  return from_real(comm, real()->ncclCommDeregister(real_of(comm), ended->real));
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const State state = state_of(comm);
  if (only_nccl(comm, state))
    return forward(comm, state, "ncclRedOpCreatePreMulSum", &Real::ncclRedOpCreatePreMulSum,
                   [=](auto function, ncclComm_t real) { return function(op, scalar, type, residence, real); });
  return create_operator(op, scalar, type, residence, comm);
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const State state = state_of(comm);
  if (!keeps_here(comm, state))
    return forward(comm, state, "ncclRedOpDestroy", &Real::ncclRedOpDestroy,
                   [=](auto function, ncclComm_t real) { return function(op, real); });
  // Calls of the group that wait for NCCL's communicator still need it.
  const auto destroy = [=] { return destroy_operator(op, comm); };
  return waits_for_real(comm) ? end_later(destroy) : destroy();
}

}  // extern "C"

PACE_NCCL_LIFE(PACE_NCCL_TWIN)
