#include "births.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "errors.h"
#include "group.h"
#include "real_library.h"
#include "serving.h"
#include "threads.h"

namespace paceline::nccl {
namespace {

// A parent's children are made one after another, in the order that all ranks ask for them in. While one is made
// behind the program's back the parent takes no calls, as they would meet its own of the making.
void join_line(ncclComm* parent, const ncclComm* child) {
  if (parent == nullptr) return;
  const std::lock_guard lock(parent->mutex);
  if (is_made_behind(child) && parent->unborn.empty()) parent->result = ncclSuccess;
  parent->unborn.push_back(child);
  State ready = State::ready;  // another one, such as of an abort, stays
  // Release: the child in the line comes before, for who finds the parent splitting. Acquire: as state_of().
  if (is_made_behind(child)) parent->state.compare_exchange_strong(ready, State::splitting, std::memory_order_acq_rel);
}

void wait_in_line(ncclComm* parent, const ncclComm* child) {
  if (parent == nullptr) return;
  std::unique_lock lock(parent->mutex);
  parent->one_born.wait(lock, [&] { return parent->unborn.front() == child; });
}

// With the parent's lock held.
void leave_line(ncclComm* parent, const ncclComm* child) {
  std::erase(parent->unborn, child);
  parent->one_born.notify_all();
  State splitting = State::splitting;
  // Release: the child's calls on the parent come before the next ones, of whoever finds it ready.
  if (std::none_of(parent->unborn.begin(), parent->unborn.end(), is_made_behind))
    parent->state.compare_exchange_strong(splitting, State::ready, std::memory_order_acq_rel);
}

// What the parent still runs ends on every rank, and it takes no more calls. With its lock held, so that no abort comes
// between.
void end_parent(ncclComm* parent) {
  State state = state_of(parent);
  if (state != State::ready && state != State::splitting) return;  // it has been ended otherwise
  (void)paceCommAbort(parent->pace);
  if (real_of(parent) != nullptr && real()->ncclCommRevoke != nullptr)
    (void)real()->ncclCommRevoke(real_of(parent), NCCL_REVOKE_DEFAULT);
  // Last: one that is splitting cannot be destroyed. Acquire and release: as in leave_line().
  parent->state.compare_exchange_strong(state, State::revoked, std::memory_order_acq_rel);
}

// The communicator is ready, or failed, unless the program has aborted it meanwhile. A program may ask only for the
// child or only for the parent, and then use both: the parent takes calls before the child is ready, and says so after
// it, for ncclCommGetAsyncError waits for the lock.
bool tell(ncclComm* parent, ncclComm* made, ncclResult_t result) {
  std::unique_lock<std::mutex> parents;
  if (parent != nullptr) {
    parents = std::unique_lock(parent->mutex);
    if (made->ends_parent && result == ncclSuccess) end_parent(parent);  // all who stay have come to the child
    leave_line(parent, made);
  }
  const std::lock_guard lock(made->mutex);
  made->result = result;
  if (made->unwanted) return false;
  // Release: what was made comes before.
  made->state.store(result == ncclSuccess ? State::ready : State::failed, std::memory_order_release);
  return true;
}

// The parent says, too, why a child could not be made, and as in NCCL that one could not be made behind the program's
// back: programs ask only the parent. One that the program has aborted meanwhile is no failure.
void tell_parent(ncclComm* parent, ncclComm* made, ncclResult_t error) {
  NotedError noted;
  {
    const std::lock_guard lock(made->mutex);
    if (made->unwanted) return;
    noted = made->last_error;
  }
  const std::lock_guard lock(parent->mutex);
  if (is_made_behind(made)) parent->result = error;
  if (noted.number > parent->last_error.number) parent->last_error = noted;
}

// Into the program's variable. Release: what the handle is comes before, for a thread that finds it there, and aborts
// it, while this one is still in the call.
void put(ncclComm* made, ncclComm_t* out) {
  if (out != nullptr) std::atomic_ref(*out).store(made, std::memory_order_release);
}

// The end of the making, and what it is: none that the program has aborted meanwhile was made.
ncclResult_t conclude(ncclComm* parent, ncclComm* made, ncclResult_t result) {
  if (tell(parent, made, result)) return result;
  // The handle's state says already that it is gone.
  if (made->real != nullptr) (void)real()->ncclCommAbort(made->real);
  if (made->pace != nullptr) {
    (void)paceCommAbort(made->pace);  // the other ranks learn it at once
    (void)paceCommDestroy(made->pace);
  }
  return result == ncclSuccess ? fail_unwanted() : result;
}

}  // namespace

// NCCL waits for a rank for ever, and its programs bring watchdogs of their own: a rank may write a checkpoint for an
// hour. A limit of ours ends nothing that NCCL would have finished, unless the user has set it.
paceConfig_t patience() {
  constexpr double one_day = 86400;
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  if (std::getenv("PACELINE_TIMEOUT") == nullptr) config.timeoutSeconds = one_day;
  const char* join_timeout = std::getenv("PACELINE_JOIN_TIMEOUT");
  config.joinTimeoutSeconds = join_timeout == nullptr ? one_day : std::max(0.0, std::strtod(join_timeout, nullptr));
  return config;
}

ncclResult_t join(ncclComm* made, const ncclUniqueId& id) {
  paceUniqueId where;
  static_assert(sizeof where == sizeof id);
  std::memcpy(&where, &id, sizeof where);
  paceComm_t pace = nullptr;
  const paceConfig_t config = patience();
  if (paceResult_t joined = paceCommInitRankConfig(&pace, made->ranks, where, made->rank, &config);
      joined != paceSuccess)
    return fail(made, nccl_code(joined),
                fmt::format("{} (ranks on several machines need PACELINE_INTERFACE, or PACELINE_NCCL_FORWARD=all)",
                            paceGetLastError(nullptr)));
  return agree(made, pace);
}

ncclResult_t hand_out(ncclComm_t* out, ncclComm* made, std::function<ncclResult_t()> birth, ncclComm* parent) {
  put(made, out);
  const auto give_up = [out, made, parent](ncclResult_t error) {
    (void)conclude(parent, made, error);
    put(nullptr, out);
    return error;
  };
  if_dropped(give_up);
  auto whole = [made, parent, birth = std::move(birth)] {
    wait_in_line(parent, made);
    const DeviceContext before = DeviceContext::current();
    made->device.enter();
    const ncclResult_t result = parent != nullptr && is_unwanted(parent) ? fail_unwanted() : birth();
    before.restore();
    if (is_error(result) && parent != nullptr) tell_parent(parent, made, result);
    return conclude(parent, made, result);
  };
  if (!is_made_behind(made)) {
    join_line(parent, made);
    return give_birth({whole, [out, made] {
                         if (state_of(made) == State::making) (void)ncclCommAbort(made);
                         put(nullptr, out);
                       }});
  }
  return start_making([made, whole, parent, give_up] {
    join_line(parent, made);
    std::thread maker = start_thread([whole] { (void)whole(); });
    if (!maker.joinable())
      return give_up(fail(nullptr, ncclSystemError, "cannot start a thread that makes the nonblocking communicator"));
    // Its last act is the end of the making, after which alone a communicator can be destroyed: nobody waits for it,
    // and a forked child, which has no such thread, need not.
    maker.detach();
    return ncclInProgress;
  });
}

}  // namespace paceline::nccl
