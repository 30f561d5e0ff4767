// NCCL's functions that make communicators.

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "births.h"
#include "errors.h"
#include "forward.h"
#include "group.h"
#include "insight.h"
#include "real_library.h"
#include "serving.h"

namespace paceline::nccl {
namespace {

// There is no such communicator after all. Release: what ended it comes before.
void take_back(ncclComm_t* out, ncclComm* made) {
  made->state.store(State::destroyed, std::memory_order_release);
  *out = nullptr;
}

// Have the real library make the communicator: call(function), which writes made->real now or at the group's end.
template <class Function, class Call>
ncclResult_t made_by_nccl(ncclComm_t* out, ncclComm* made, const char* name, Function Real::*function, Call call) {
  const Real* library = real();
  if (library == nullptr) return fail_without_real(nullptr, name, "the unique id is NCCL's own");
  if (library->*function == nullptr) return fail_to_forward(nullptr, name);
  if (ncclResult_t joined = join_real_group(made); joined != ncclSuccess) return joined;
  // Release: rank, size and device come before. The real communicator has an order of its own (real_of).
  made->state.store(State::ready, std::memory_order_release);
  *out = made;
  const ncclResult_t result = from_real(nullptr, call(library->*function));
  if (is_error(result))
    take_back(out, made);
  else
    if_dropped([out, made](ncclResult_t) { take_back(out, made); });
  return result;
}

// The same from a communicator that NCCL serves alone, and that is ready: call(function, its real communicator).
template <class Function, class Call>
ncclResult_t made_from(ncclComm* parent, ncclComm_t* out, ncclComm* made, const char* name, Function Real::*function,
                       Call call) {
  made->state.store(State::ready, std::memory_order_release);  // as above
  *out = made;
  const ncclResult_t result = forward(parent, State::ready, name, function, call);
  if (is_error(result))
    take_back(out, made);
  else
    if_dropped([out, made](ncclResult_t) { take_back(out, made); });
  return result;
}

// What a call that makes a communicator from another one, or for one that grows, ends with: NCCL says ncclInProgress of
// these only by the end of a group and by ncclCommGetAsyncError, and programs take all but success for an error.
ncclResult_t begun(ncclResult_t result) { return result == ncclInProgress ? ncclSuccess : result; }

// The calling thread's device. A program may use CUDA here first: the runtime would then take device 0, and NCCL has it
// do so.
DeviceContext current_or_first() {
  const DeviceContext current = DeviceContext::current();
  return choice().on_gpus && current.device() < 0 ? DeviceContext::of_device(0) : current;
}

ncclComm* new_rank(int ranks, int rank, const ncclConfig_t* config, const DeviceContext& device) {
  announce();
  ncclComm* made = make_handle(config);
  made->ranks = ranks;
  made->rank = rank;
  made->device = device;
  return made;
}

// It lives on its parent's device, whatever is current on the calling thread. Whether its making blocks is the parent's
// to say where it is split or shrunk, and its own where it grows, as in NCCL.
ncclComm* child_of(const ncclComm* parent, const ncclConfig_t* config) {
  const bool known = parent->device.device() >= 0;
  ncclComm* made = new_rank(parent->ranks, parent->rank, config, known ? parent->device : DeviceContext::current());
  if (config == nullptr) made->config = parent->config;
  return made;
}

// A communicator of Paceline's that came from another one: its size and number, then who serves what.
ncclResult_t settle(ncclComm* made, paceComm_t pace) {
  if (pace == nullptr) return ncclSuccess;  // this rank has no part in it
  (void)paceCommCount(pace, &made->ranks);
  (void)paceCommUserRank(pace, &made->rank);
  return agree(made, pace);
}

ncclResult_t bad_settings() {
  return choice().problem.empty() ? ncclSuccess : fail(nullptr, ncclInvalidUsage, choice().problem);
}

ncclResult_t bad_config(const ncclConfig_t* config, const char* function) {
  if (config == nullptr || config->magic == NCCL_API_MAGIC) return ncclSuccess;
  return fail(nullptr, ncclInvalidArgument,
              fmt::format("{}: the configuration was not started from NCCL_CONFIG_INITIALIZER", function));
}

// Rank and size as the ids are read: whose they are decides who makes the communicator.
template <class Function, class Call>
ncclResult_t init(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config,
                  const char* name, Function Real::*function, Call call) {
  if (comm == nullptr) return missing(nullptr, name, "comm");
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return fail(nullptr, ncclInvalidArgument, fmt::format("{}: rank {} of {} ranks", name, rank, ranks));
  if (ncclResult_t bad = bad_settings(); bad != ncclSuccess) return bad;
  if (is_pacelines(id))
    if (ncclResult_t bad = bad_config(config, name); bad != ncclSuccess) return bad;
  ncclComm* made = new_rank(ranks, rank, config, current_or_first());
  if (!is_pacelines(id))
    return made_by_nccl(comm, made, name, function, [&](Function target) { return call(target, &made->real); });
  made->made_behind = is_nonblocking(made);
  return hand_out(comm, made, [made, id] { return join(made, id); });
}

// Nobody comes by the id: a communicator of one rank takes along, and closes, what listens for it.
void forget(const ncclUniqueId& id) {
  paceUniqueId own;
  std::memcpy(&own, &id, sizeof own);
  paceComm_t alone = nullptr;
  if (paceCommInitRank(&alone, 1, own, 0) == paceSuccess) (void)paceCommDestroy(alone);
}

// The split of one that has been revoked: its ranks meet without it, first all, to learn each other's colors, and then
// those of a color in a session of their own, which one of them watches over. `passing`: what it takes, to be destroyed
// when the child is there.
paceResult_t split_revoked(const ncclComm* parent, int color, int key, paceComm_t* made,
                           std::vector<paceComm_t>& passing) {
  const paceConfig_t config = patience();
  const auto shrink = [&](paceComm_t from, const std::vector<int>& excluded, paceComm_t& to) {
    const paceResult_t result = paceCommShrink(from, excluded.data(), static_cast<int>(excluded.size()), &to, &config);
    if (result == paceSuccess) passing.push_back(to);
    return result;
  };
  paceComm_t whole = nullptr, part = nullptr;
  if (paceResult_t met = shrink(parent->pace, {}, whole); met != paceSuccess) return met;
  std::vector<int> colors(static_cast<std::size_t>(parent->ranks));
  if (paceResult_t told = paceAllGather(&color, colors.data(), 1, paceInt32, whole, nullptr); told != paceSuccess)
    return told;
  if (color < 0) return paceSuccess;
  std::vector<int> others;
  for (int rank = 0; rank < parent->ranks; ++rank)
    if (colors[static_cast<std::size_t>(rank)] != color) others.push_back(rank);
  if (paceResult_t met = shrink(whole, others, part); met != paceSuccess) return met;
  return paceCommSplit(part, 0, key, made, &config);
}

// Whoever of the old ranks has the id of ncclCommGetUniqueId tells it to the others. `mine`: zeros where this one has
// none.
ncclResult_t tell_growth(ncclComm* parent, const ncclUniqueId& mine, ncclUniqueId& id) {
  std::vector<ncclUniqueId> told(static_cast<std::size_t>(parent->ranks));
  if (paceResult_t result = paceAllGather(&mine, told.data(), sizeof mine, paceUint8, parent->pace, nullptr);
      result != paceSuccess)
    return failed_in_paceline(parent, result);
  const auto found = std::find_if(told.begin(), told.end(), is_pacelines);
  if (found == told.end())
    return fail(parent, ncclInvalidArgument, "ncclCommGrow: no rank has called ncclCommGetUniqueId, or given its id");
  id = *found;
  return ncclSuccess;
}

ncclResult_t init_all(ncclComm_t* comms, int devices, const int* device) {
  if (comms == nullptr) return missing(nullptr, "ncclCommInitAll", "comm");
  if (devices < 1) return fail(nullptr, ncclInvalidArgument, fmt::format("ncclCommInitAll: {} devices", devices));
  if (ncclResult_t bad = bad_settings(); bad != ncclSuccess) return bad;
  if (const std::string why = why_ids_are_nccls(); !why.empty()) {
    const Real* library = real();
    if (library == nullptr) return fail_without_real(nullptr, "ncclCommInitAll", why);
    if (group().depth > 0)
      return fail(nullptr, ncclInvalidUsage, "ncclCommInitAll inside a group: it is a group of its own");
    std::vector<ncclComm_t> reals(static_cast<std::size_t>(devices));
    const ncclResult_t result = from_real(nullptr, library->ncclCommInitAll(reals.data(), devices, device));
    for (int i = 0; i < devices; ++i) {
      ncclComm* made = new_rank(devices, i, nullptr, DeviceContext::current());
      made->real = reals[static_cast<std::size_t>(i)];
      // Release: the real communicator comes before.
      made->state.store(State::ready, std::memory_order_release);
      comms[i] = is_error(result) ? nullptr : made;
    }
    return result;
  }
  const auto wanted = [&](int i) { return device == nullptr ? i : device[i]; };
  const int there = DeviceContext::devices();
  for (int i = 0; i < devices; ++i)
    if (choice().on_gpus && (wanted(i) < 0 || wanted(i) >= there))
      return fail(nullptr, ncclInvalidArgument, fmt::format("ncclCommInitAll: there is no device {}", wanted(i)));
  std::vector<DeviceContext> contexts;
  for (int i = 0; i < devices; ++i) {
    contexts.push_back(DeviceContext::of_device(wanted(i)));
    if (choice().on_gpus && contexts.back().device() < 0)
      return fail(nullptr, ncclUnhandledCudaError,
                  fmt::format("ncclCommInitAll: device {} gives no context (cuDevicePrimaryCtxRetain)", wanted(i)));
  }
  ncclUniqueId id;
  if (ncclResult_t made = ncclGetUniqueId(&id); made != ncclSuccess) return made;
  (void)start_group();
  if_dropped([id](ncclResult_t) { forget(id); });
  ncclResult_t result = ncclSuccess;
  for (int i = 0; i < devices; ++i) {
    ncclComm* made = new_rank(devices, i, nullptr, contexts[static_cast<std::size_t>(i)]);
    result = worse(result, hand_out(&comms[i], made, [made, id] { return join(made, id); }));
  }
  return worse(result, end_group());
}

ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  if (const State state = state_of(comm); !can_be_parent(state)) return refuse(comm, state, "ncclCommSplit");
  if (made == nullptr) return missing(nullptr, "ncclCommSplit", "newcomm");
  if (comm->pace != nullptr)
    if (ncclResult_t bad = bad_config(config, "ncclCommSplit"); bad != ncclSuccess) return bad;
  ncclComm* child = child_of(comm, config);
  child->made_behind = is_nonblocking(comm);
  ncclResult_t result = ncclSuccess;
  if (comm->pace == nullptr)
    result = made_from(comm, made, child, "ncclCommSplit", &Real::ncclCommSplit, [=](auto function, ncclComm_t real) {
      return function(real, color, key, &child->real, config);
    });
  else
    result = hand_out(
        color < 0 ? nullptr : made, child,
        [=] {
          paceComm_t pace = nullptr;
          std::vector<paceComm_t> passing;
          const paceConfig_t config = patience();
          const paceResult_t split = state_of(comm) == State::revoked
                                         ? split_revoked(comm, color, key, &pace, passing)
                                         : paceCommSplit(comm->pace, color, key, &pace, &config);
          const ncclResult_t result = split == paceSuccess ? settle(child, pace) : failed_in_paceline(comm, split);
          for (const paceComm_t one : passing) (void)paceCommDestroy(one);
          return result;
        },
        comm);
  if (color < 0) *made = nullptr;
  return result;
}

ncclResult_t shrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config, int flags) {
  if (const State state = state_of(comm); !can_be_parent(state)) return refuse(comm, state, "ncclCommShrink");
  if (made == nullptr || excluded == nullptr)
    return missing(nullptr, "ncclCommShrink", made == nullptr ? "newcomm" : "the list");
  if (comm->pace != nullptr) {
    if (ncclResult_t bad = bad_config(config, "ncclCommShrink"); bad != ncclSuccess) return bad;
    if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT)
      return fail(comm, ncclInvalidArgument, fmt::format("ncclCommShrink: there are no flags {}", flags));
  }
  ncclComm* child = child_of(comm, config);
  child->made_behind = is_nonblocking(comm);
  if (comm->pace == nullptr)
    return made_from(comm, made, child, "ncclCommShrink", &Real::ncclCommShrink, [=](auto function, ncclComm_t real) {
      return function(real, excluded, count, &child->real, config, flags);
    });
  const auto is_none = [&](int rank) { return rank < 0 || rank >= comm->ranks; };
  if (count < 1 || std::any_of(excluded, excluded + count, is_none))
    return fail(comm, ncclInvalidArgument,
                fmt::format("ncclCommShrink: {} ranks to exclude, each of 0 to {}", count, comm->ranks - 1));
  const std::vector<int> out(excluded, excluded + count);
  if (std::find(out.begin(), out.end(), comm->rank) != out.end())
    return fail(comm, ncclInvalidArgument, "ncclCommShrink: an excluded rank does not call it");
  child->ends_parent = flags == NCCL_SHRINK_ABORT;
  return hand_out(
      made, child,
      [=] {
        paceComm_t pace = nullptr;
        const paceConfig_t config = patience();
        if (paceResult_t shrunk = paceCommShrink(comm->pace, out.data(), count, &pace, &config); shrunk != paceSuccess)
          return failed_in_paceline(comm, shrunk);
        return settle(child, pace);
      },
      comm);
}

// The id by which the communicator grows, on the rank that has made it: it is good for one growth.
ncclUniqueId take_growth(ncclComm* comm) {
  const std::lock_guard lock(comm->mutex);
  return std::exchange(comm->growth, {});
}

// A new rank of a communicator that grows.
ncclResult_t come_new(int ranks, const ncclUniqueId* id, int rank, ncclComm_t* made, ncclConfig_t* config) {
  if (id == nullptr) return missing(nullptr, "ncclCommGrow", "uniqueId");
  return init(made, ranks, *id, rank, config, "ncclCommGrow", &Real::ncclCommGrow,
              [=](auto function, ncclComm_t* real) { return function(nullptr, ranks, id, rank, real, config); });
}

ncclResult_t grow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* made,
                  ncclConfig_t* config) {
  if (const State state = state_of(comm); state != State::ready) return refuse(comm, state, "ncclCommGrow");
  if (made == nullptr) return missing(nullptr, "ncclCommGrow", "newcomm");
  if (comm->pace != nullptr)
    if (ncclResult_t bad = bad_config(config, "ncclCommGrow"); bad != ncclSuccess) return bad;
  ncclComm* child = child_of(comm, config);
  child->made_behind = is_nonblocking(child);
  if (comm->pace == nullptr)
    return made_from(comm, made, child, "ncclCommGrow", &Real::ncclCommGrow, [=](auto function, ncclComm_t real) {
      return function(real, ranks, id, rank, &child->real, config);
    });
  if (ranks <= comm->ranks)
    return fail(comm, ncclInvalidArgument,
                fmt::format("ncclCommGrow: from {} ranks to {}, which are no more", comm->ranks, ranks));
  child->ranks = ranks;
  const ncclUniqueId kept = take_growth(comm);
  const ncclUniqueId given = id != nullptr ? *id : kept;
  return hand_out(
      made, child,
      [=] {
        ncclUniqueId shared{};
        if (ncclResult_t told = tell_growth(comm, given, shared); told != ncclSuccess) return told;
        return join(child, shared);
      },
      comm);
}

}  // namespace
}  // namespace paceline::nccl

using namespace paceline::nccl;

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return missing(nullptr, "ncclGetUniqueId", "uniqueId");
  if (ncclResult_t bad = bad_settings(); bad != ncclSuccess) return bad;
  if (const std::string why = why_ids_are_nccls(); !why.empty()) {
    const Real* library = real();
    if (library == nullptr) return fail_without_real(nullptr, "ncclGetUniqueId", why);
    return from_real(nullptr, library->ncclGetUniqueId(id));
  }
  paceUniqueId own{};
  if (paceResult_t made = paceGetUniqueId(&own); made != paceSuccess) return failed_in_paceline(nullptr, made);
  std::memcpy(id, &own, sizeof *id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return spoil_if_failed(init(comm, ranks, id, rank, nullptr, "ncclCommInitRank", &Real::ncclCommInitRank,
                              [=](auto function, ncclComm_t* real) { return function(real, ranks, id, rank); }));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return spoil_if_failed(
      init(comm, ranks, id, rank, config, "ncclCommInitRankConfig", &Real::ncclCommInitRankConfig,
           [=](auto function, ncclComm_t* real) { return function(real, ranks, id, rank, config); }));
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int ids, ncclUniqueId* id,
                                      ncclConfig_t* config) {
  if (id == nullptr) return spoil_if_failed(missing(nullptr, "ncclCommInitRankScalable", "commIds"));
  if (ids < 1 || ids > ranks)
    return spoil_if_failed(
        fail(nullptr, ncclInvalidArgument, fmt::format("ncclCommInitRankScalable: {} ids for {} ranks", ids, ranks)));
  // Ranks of Paceline's meet by the first one.
  for (int i = 1; i < ids; ++i)
    if (is_pacelines(id[i]) && std::memcmp(&id[i], &id[0], sizeof *id) != 0) forget(id[i]);
  return spoil_if_failed(
      init(comm, ranks, id[0], rank, config, "ncclCommInitRankScalable", &Real::ncclCommInitRankScalable,
           [=](auto function, ncclComm_t* real) { return function(real, ranks, rank, ids, id, config); }));
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* device) {
  return spoil_if_failed(init_all(comms, devices, device));
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  return spoil_if_failed(begun(split(comm, color, key, made, config)));
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config,
                            int flags) {
  return spoil_if_failed(begun(shrink(comm, excluded, count, made, config, flags)));
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  const State state = state_of(comm);
  if (state != State::ready || comm->pace == nullptr)
    return forward(comm, state, "ncclCommGetUniqueId", &Real::ncclCommGetUniqueId,
                   [=](auto function, ncclComm_t real) { return function(real, id); });
  if (id == nullptr) return missing(nullptr, "ncclCommGetUniqueId", "uniqueId");
  paceUniqueId own{};
  if (paceResult_t made = paceGetUniqueId(&own); made != paceSuccess) return failed_in_paceline(comm, made);
  std::memcpy(id, &own, sizeof *id);
  const std::lock_guard lock(comm->mutex);
  comm->growth = *id;
  return ncclSuccess;
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* made,
                          ncclConfig_t* config) {
  return spoil_if_failed(
      begun(comm == nullptr ? come_new(ranks, id, rank, made, config) : grow(comm, ranks, id, rank, made, config)));
}

}  // extern "C"

PACE_NCCL_BIRTHS(PACE_NCCL_TWIN)
