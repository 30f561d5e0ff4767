// A whole group, and its calls on GPU memory: launched there, or brought to host memory.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "api/group.h"
#include "base/all_or_none.h"
#include "comm/host_copies.h"
#include "cuda/driver/device.h"
#include "cuda/driver/driver.h"

namespace paceline::api {
namespace {

// Whether the communicator has ended, or is destroyed by another thread.
bool is_over(paceComm* comm) {
  bool failed = false;
  const Status looked =
      beside_calls(comm, [&](const Communicator& communicator) { failed = !communicator.failure().ok(); });
  return failed || !looked.ok();
}

// Whether the arguments of a call are wrong, and its communicator goes on.
bool is_of_arguments(const Status& status, paceComm* comm) {
  const bool may_be = status.code() == Code::invalid_argument || status.code() == Code::invalid_usage ||
                      status.code() == Code::mismatch;
  return may_be && !is_over(comm);
}

// The GPU that a communicator is to use whose first call this is: the stream's, else the buffers', else the current
// one.
int gpu_for(const OnDevice& call, int current) {
  if (const int its = cuda::device_of_stream(call.stream); its >= 0) return its;
  const Request& request = call.request;
  for (const auto& [buffer, gpu] : {std::pair(request.send, request.send_gpu), {request.recv, request.recv_gpu}})
    if (gpu >= 0 && gpu != current && !cuda::is_shared_with(current, buffer, call.stream)) return gpu;
  return current;
}

// Communicators whose first call on GPU memory this is have their ranks meet, all side by side: other ranks may name
// them in another order. After a failure `failing` is the one that it is of; if it has ended, so have the others.
Status meet_on_gpus(std::span<const OnDevice> on_device, paceComm*& failing) {
  std::vector<const OnDevice*> first;
  for (const OnDevice& call : on_device) {
    failing = call.comm;
    Status ended;
    bool known = false;
    PACE_TRY(beside_calls(call.comm, [&](const Communicator& communicator) {
      ended = communicator.failure();
      known = communicator.knows_gpus();
    }));
    PACE_TRY(ended);
    if (!known && std::ranges::find(first, call.comm, &OnDevice::comm) == first.end()) first.push_back(&call);
  }
  if (first.empty()) return {};
  const auto current = current_device();
  Status first_failure;
  std::mutex mutex;
  const auto meet = [&](std::size_t i) {
    const Status met = guarded([&]() -> Status {
      if (current.ok()) PACE_TRY(use_device(gpu_for(*first[i], *current)));
      return inside(*first[i]->comm, [](Communicator& c) { return c.meet_on_gpus(); });
    });
    const std::lock_guard lock(mutex);
    if (met.ok() || !first_failure.ok()) return;
    first_failure = met;
    failing = first[i]->comm;
    if (is_of_arguments(met, failing)) return;
    for (const OnDevice* const other : first)
      if (other != first[i]) break_off_group(other->comm, met, false);
  };
  failing = first.front()->comm;
  const bool stays = !current.ok() || gpu_for(*first.front(), *current) == *current;
  if (first.size() == 1 && stays) {
    meet(0);
    return first_failure;
  }
  const auto can = [](std::size_t) { return true; };
  if (const auto failed = all_or_none(first.size(), can, meet)) {
    failing = first[failed->thread]->comm;
    return guarded([&]() -> Status { std::rethrow_exception(failed->why); });
  }
  return first_failure;
}

// A group's calls on GPU memory that go through the host's, and whose they are.
struct Brought {
  HostCopies copies;
  std::vector<paceComm*> comms;
};

// A group's calls on GPU memory that are not launched there become calls on host memory, so that these of all
// communicators go on side by side: what waits for another rank in one of them may have that rank wait in another.
// After a failure `failing` is the communicator that it is of.
Status bring_to_host(std::vector<OnDevice>& on_device, std::vector<Queued>& calls, Brought& brought,
                     paceComm*& failing) {
  for (const OnDevice& call : on_device) {
    failing = call.comm;
    PACE_TRY(beside_calls(call.comm, [&](const Communicator& whose) {
      if (whose.gpus_direct()) return;
      brought.copies.add(call.request, call.stream, whose.rank(), whose.size());
      brought.comms.push_back(call.comm);
    }));
  }
  if (brought.comms.empty()) return {};
  failing = brought.comms.front();
  PACE_TRY(brought.copies.load());
  std::vector<Queued> on_host;
  for (std::size_t i = 0; i < brought.comms.size(); ++i)
    on_host.push_back({brought.comms[i], brought.copies.on_host(i), nullptr});
  calls.insert(calls.begin(), on_host.begin(), on_host.end());
  std::erase_if(on_device, [&](const OnDevice& call) {
    return std::ranges::find(brought.comms, call.comm) != brought.comms.end();
  });
  return {};
}

// After the group has run, or failed: a communicator that lives on although another one failed has done its part.
Status store(Brought& brought, const Status& run) {
  Status stored = run;
  for (std::size_t i = 0; i < brought.comms.size(); ++i) {
    if (!run.ok() && is_over(brought.comms[i])) continue;
    const Status one = brought.copies.store(i);
    if (stored.ok()) stored = one;
  }
  return stored;
}

// One communicator's calls of a group: first the messages, together, then the collectives in order. All on the first of
// their streams: as NCCL has it they begin behind what is on any of them, and what comes on these follows all of them.
Status run_on_gpu(std::span<OnDevice* const> calls) {
  paceComm& comm = *calls.front()->comm;
  void* const stream = calls.front()->stream;
  std::set<void*> others;
  std::vector<Request> messages;
  for (const OnDevice* call : calls) {
    if (call->stream != stream) others.insert(call->stream);
    if (is_message(call->request.which)) messages.push_back(call->request);
  }
  for (void* const other : others)
    PACE_TRY(inside(comm, [&](Communicator& c) { return c.order_streams(other, stream); }));
  if (!messages.empty())
    PACE_TRY(inside(comm, [&](Communicator& c) { return c.run_messages_on_device(messages, stream); }));
  for (OnDevice* call : calls)
    if (is_message(call->request.which)) call->comm = nullptr;
  for (OnDevice* call : calls) {
    if (call->comm == nullptr) continue;
    PACE_TRY(inside(comm, [&](Communicator& c) { return c.run_on_device(call->request, stream); }));
    call->comm = nullptr;
  }
  for (void* const other : others)
    PACE_TRY(inside(comm, [&](Communicator& c) { return c.order_streams(stream, other); }));
  return {};
}

// A group's calls that are launched on GPUs, those of one communicator after those of another. They only begin here, so
// no order among communicators can block. Those that have begun lose their communicator; after a failure `failing` is
// the one that it is of.
Status run_group_on_device(std::vector<OnDevice>& calls, paceComm*& failing) {
  std::vector<std::pair<paceComm*, std::vector<OnDevice*>>> by_comm;  // in the order of their first calls
  for (OnDevice& call : calls) {
    const auto same = [&](const auto& whose) { return whose.first == call.comm; };
    auto found = std::ranges::find_if(by_comm, same);
    if (found == by_comm.end()) found = by_comm.insert(found, {call.comm, {}});
    found->second.push_back(&call);
  }
  std::optional<cuda::NothingCloses> until_all_are_launched;
  if (by_comm.size() > 1) {
    for (const auto& [comm, whose] : by_comm) {
      failing = comm;
      PACE_TRY(inside(*comm, [](Communicator& c) {
        c.let_go();
        return Status();
      }));
    }
    until_all_are_launched.emplace();
  }
  for (const auto& [comm, whose] : by_comm) {
    failing = comm;
    PACE_TRY(run_on_gpu(whose));
  }
  return {};
}

// Whether another thread is inside, as far as can be told: those with calls queued are inside by right.
Status check_alone(paceComm& comm) {
  const std::uint64_t queued = comm.queued.load(std::memory_order_relaxed);
  if (comm.ended.load(std::memory_order_acquire) != queued) return {};
  bool alone = false;
  PACE_TRY(beside_calls(&comm, [&](Communicator& communicator) { alone = Hold(communicator).held(); }));
  return alone ? Status() : two_threads();
}

std::string named(const Request& message) {
  return fmt::format("the {} rank {}", message.which == Collective::recv ? "receive from" : "send to", message.root);
}

// Whether none of a communicator's messages writes where another one reads or writes, who would see it change. Of one
// to itself (each send with its receive, in order) both ends may be one place.
Status check_apart(const std::vector<const Request*>& messages, int rank) {
  struct Extent {
    std::uintptr_t begin = 0, end = 0;
    const Request* message = nullptr;
    int to_itself = -1;  // which one of those

    [[nodiscard]] bool receives() const { return message->which == Collective::recv; }
  };
  std::vector<Extent> extents;
  int sent = 0, received = 0;  // to itself
  for (const Request* const message : messages) {
    if (message->count == 0) continue;
    Extent extent{.message = message};
    extent.begin = reinterpret_cast<std::uintptr_t>(extent.receives() ? message->recv : message->send);
    extent.end = extent.begin + message->count * size_of(message->type);
    if (message->root == rank) extent.to_itself = (extent.receives() ? received : sent)++;
    extents.push_back(extent);
  }
  std::ranges::sort(extents, {}, &Extent::begin);
  Extent farthest, farthest_received;  // of those so far
  for (const Extent& one : extents) {
    const Extent& other = one.receives() ? farthest : farthest_received;
    const bool both_ends = one.to_itself >= 0 && one.to_itself == other.to_itself && one.begin == other.begin &&
                           one.receives() != other.receives();
    if (other.end > one.begin && !both_ends)
      return Status(Code::invalid_argument,
                    fmt::format("rank {}: {} and {} of one group use the same memory: give what is received a place of "
                                "its own",
                                rank, named(*other.message), named(*one.message)));
    if (one.end > farthest.end) farthest = one;
    if (one.receives() && one.end > farthest_received.end) farthest_received = one;
  }
  return {};
}

// Before any call of a group begins: what would be refused later, when others have begun.
Status check_group(std::span<const OnDevice> on_device, std::span<const Queued> calls) {
  // Messages to oneself go together: those of a communicator on GPU memory, and those on host memory.
  std::map<std::pair<paceComm*, bool>, std::vector<const Request*>> messages;
  const bool some_begin_before =
      !on_device.empty() || std::ranges::any_of(calls, [](const Queued& call) { return call.stream != nullptr; });
  for (const OnDevice& call : on_device) {
    PACE_TRY(check_alone(*call.comm));
    if (is_message(call.request.which)) messages[{call.comm, true}].push_back(&call.request);
  }
  for (const Queued& call : calls) {
    if (call.stream == nullptr && some_begin_before) PACE_TRY(check_alone(*call.comm));
    if (is_message(call.request.which)) messages[{call.comm, false}].push_back(&call.request);
  }
  for (const auto& together : messages) {
    Status fit;
    PACE_TRY(beside_calls(together.first.first, [&](const Communicator& communicator) {
      fit = messages_to_self(together.second, communicator.rank()).status();
      // Messages on GPU memory are not looked at: NCCL's programs share it, and do not mind.
      const bool on_gpu = together.first.second;
      if (fit.ok() && !on_gpu) fit = check_apart(together.second, communicator.rank());
    }));
    PACE_TRY(fit);
  }
  return {};
}

// A group has failed on GPUs: whoever waits for the calls that have not begun, on host memory too, will not get them.
// Where none has begun, and that for its arguments, all is as it was.
void break_off_undone(std::span<const OnDevice> on_device, std::span<const Queued> calls, const Status& cause,
                      paceComm* failing) {
  const bool any_begun = std::ranges::find(on_device, nullptr, &OnDevice::comm) != on_device.end();
  if (!any_begun && failing != nullptr && is_of_arguments(cause, failing)) return;
  for (const OnDevice& call : on_device)
    if (call.comm != nullptr) break_off_group(call.comm, cause, call.comm == failing);
  for (const Queued& call : calls) break_off_group(call.comm, cause, call.comm == failing);
}

}  // namespace

Status run_group(std::vector<Queued> calls, std::vector<OnDevice> device_calls) {
  for (const Queued& call : calls) PACE_TRY(check(call.comm));
  for (const OnDevice& call : device_calls) PACE_TRY(check(call.comm));
  PACE_TRY(check_group(device_calls, calls));
  paceComm* failing = nullptr;
  Brought brought;
  std::vector<paceComm*> on_host;  // whose calls run there
  Status begun = guarded([&]() -> Status {
    PACE_TRY(meet_on_gpus(device_calls, failing));
    for (const OnDevice& call : device_calls) {
      failing = call.comm;
      Status checked;
      PACE_TRY(beside_calls(call.comm, [&](const Communicator& communicator) {
        checked = communicator.check_memory(call.request, call.stream);
      }));
      PACE_TRY(checked);
    }
    PACE_TRY(bring_to_host(device_calls, calls, brought, failing));
    on_host.reserve(calls.size());
    for (const Queued& call : calls) on_host.push_back(call.comm);
    return run_group_on_device(device_calls, failing);
  });
  if (!begun.ok()) {
    break_off_undone(device_calls, calls, begun, failing);
    return begun;
  }
  if (on_host.empty()) return {};
  bool threw = true;
  const Status run = guarded([&] {
    Status ended = run_on_host(std::move(calls), !device_calls.empty());
    threw = false;
    return ended;
  });
  if (threw)
    for (paceComm* const comm : on_host) break_off_group(comm, run, true);
  const bool refused = !run.ok() && std::ranges::none_of(on_host, is_over);
  return refused ? run : store(brought, run);
}

}  // namespace paceline::api
