#include "births.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "errors.h"
#include "group.h"
#include "insight.h"
#include "real_library.h"
#include "threads.h"

namespace paceline::nccl {
namespace {

// What each rank tells the others.
struct Facts {
  Services forwarded = 0;
  std::uint8_t engine = 0;  // Paceline serves GPU memory there
  std::uint8_t direct = 0;  // and between the ranks' GPUs themselves
  std::uint8_t real_in_reach = 0;
};

Facts my_facts(paceComm_t pace) {
  Facts facts;
  facts.forwarded = choice().forwarded;
  facts.engine = choice().why_nothing.empty() ? 1 : 0;
  int direct = 1;
  if (choice().on_gpus && paceCommGpuDirect(pace, &direct) != paceSuccess) direct = 0;
  facts.direct = static_cast<std::uint8_t>(direct);
  facts.real_in_reach = real_in_reach() ? 1 : 0;
  return facts;
}

// Why NCCL serves all calls of the communicator; empty: it does not.
std::string why_nccl_serves_all(paceComm_t pace, const std::vector<Facts>& facts) {
  int here = 0;
  if (paceCommNodeCount(pace, &here) != paceSuccess || here != static_cast<int>(facts.size()))
    return "the ranks are on several machines";
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    if (facts[rank].engine == 0) return fmt::format("Paceline has no engine for GPUs on rank {}", rank);
    if (facts[rank].direct == 0) return fmt::format("calls on rank {}'s GPU would go through host memory", rank);
  }
  return {};
}

// Who serves what; `why`: NCCL serves all, and the reason.
ncclResult_t share_out(ncclComm* made, std::string& why) {
  const Facts mine = my_facts(made->pace);
  std::vector<Facts> facts(static_cast<std::size_t>(made->ranks));
  if (paceResult_t told = paceAllGather(&mine, facts.data(), sizeof mine, paceUint8, made->pace, nullptr);
      told != paceSuccess)
    return failed_in_paceline(made, told);
  for (std::size_t rank = 1; rank < facts.size(); ++rank)
    if (facts[rank].forwarded != facts[0].forwarded)
      return fail(made, ncclInvalidUsage,
                  fmt::format("PACELINE_NCCL_FORWARD differs: rank 0 forwards [{}], rank {} [{}]",
                              names(facts[0].forwarded), rank, names(facts[rank].forwarded)));
  made->forwarded = mine.forwarded;
  why = why_nccl_serves_all(made->pace, facts);
  if (why.empty() && made->forwarded == 0) return ncclSuccess;

  const std::string need = why.empty() ? "PACELINE_NCCL_FORWARD says so" : why;
  for (std::size_t rank = 0; rank < facts.size(); ++rank)
    if (facts[rank].real_in_reach == 0) {
      if (static_cast<int>(rank) == made->rank) return fail_without_real(made, "the making of the communicator", need);
      return fail(made, ncclInvalidUsage,
                  fmt::format("the making of the communicator needs NCCL itself ({}), and rank {} has none: see "
                              "PACELINE_NCCL_LIBRARY",
                              need, rank));
    }
  if (!why.empty()) announce_handover(made->ranks, why);
  return make_real({made}, "the making of the communicator");
}

ncclResult_t fail_unwanted() {
  return fail(nullptr, nccl_code(paceAborted), "the communicator was aborted while it was being made");
}

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

std::string why_ids_are_nccls() {
  if (!choice().why_nothing.empty()) return choice().why_nothing;
  // Programs that set it pass no id on: each rank asks for its own, and NCCL makes them alike by the variable.
  const char* meeting = std::getenv("NCCL_COMM_ID");
  if (meeting != nullptr && *meeting != '\0')
    return "NCCL_COMM_ID says where the ranks meet, each with an id of its own";
  const char* interface = std::getenv("PACELINE_INTERFACE");
  if (job_may_span_machines() && (interface == nullptr || *interface == '\0'))
    return "the job's ranks are on several machines, or may be where LOCAL_WORLD_SIZE does not say how many are here, "
           "and PACELINE_INTERFACE does not say where they can meet";
  return {};
}

bool is_pacelines(const ncclUniqueId& id) { return std::memcmp(id.internal, "PACEID", 6) == 0; }

ncclResult_t agree(ncclComm* made, paceComm_t pace) {
  made->pace = pace;
  if (is_unwanted(made)) return fail_unwanted();  // the others, who still have to agree, are told by its end
  std::string why_all;
  const ncclResult_t result = share_out(made, why_all);
  if (result != ncclSuccess || !why_all.empty()) {
    (void)paceCommDestroy(pace);
    made->pace = nullptr;
  }
  return result;
}

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
