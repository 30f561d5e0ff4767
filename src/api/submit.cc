// From a checked call to its run: now, on a stream, or at the end of a group.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <tuple>
#include <utility>

#include "api/handle.h"
#include "base/fork_hold.h"
#include "base/signals_blocked.h"
#include "comm/host_copies.h"
#include "cuda/device.h"

namespace paceline::api {
namespace {

struct Queued {
  paceComm* comm;
  Request request;
  HostStream* stream;
};

// A call on GPU memory, and its cudaStream_t.
struct OnDevice {
  paceComm* comm;
  Request request;
  void* stream;
};

// This thread's open group.
struct Group {
  int depth = 0;
  Status error;  // of the first call that failed its checks
  std::vector<Queued> calls;
  std::vector<OnDevice> device_calls;
};
thread_local Group group;
// Of all threads: while there is none, nobody has to find out about his own.
std::atomic<int> open_groups{0};

// Relaxed: a thread sees what it did itself.
bool in_group() { return open_groups.load(std::memory_order_relaxed) != 0 && group.depth > 0; }

Status run_now(paceComm* comm, const Arguments& arguments, const Checked& call) {
  Communicator& communicator = *comm->communicator;
  // Calls on a communicator keep their order: a blocking one comes after those queued on streams.
  after_queued(*comm);
  const Hold hold(communicator);
  if (!hold.held()) [[unlikely]]
    return two_threads();
  if (arguments.op >= paceNumOps) return communicator.run(call.request);  // an operator may be another one next time
  FamiliarCalls::Call& place = comm->familiar->place(arguments);
  place = {true, arguments, call, {}};
  return communicator.run(call.request, place.plan);
}

Status run_group_now(const std::vector<Queued>& calls) {
  std::vector<Communicator*> communicators;
  std::vector<Request> requests;
  for (const Queued& call : calls) {
    communicators.push_back(call.comm->communicator.get());
    requests.push_back(call.request);
  }
  std::vector<Communicator*> distinct = communicators;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::deque<Hold> holds;
  for (Communicator* communicator : distinct) {
    holds.emplace_back(*communicator);
    if (!holds.back().held()) return two_threads();
  }
  return Communicator::run_group(communicators, requests);
}

// The turn of some calls of one communicator among all that it gets on streams.
struct Turn {
  paceComm* comm;
  std::uint64_t before;  // calls that come first
  std::uint64_t calls;
};

std::vector<Turn> turns_of(const std::vector<Queued>& calls) {
  std::vector<Turn> turns;
  for (const Queued& call : calls) {
    auto turn = std::ranges::find(turns, call.comm, &Turn::comm);
    if (turn == turns.end())
      turn = turns.insert(turn, {call.comm, call.comm->queued.load(std::memory_order_relaxed), 0});
    ++turn->calls;
  }
  return turns;
}

// Held while calls are queued, so that those on several streams are in one order on all of them.
std::mutex order;
const HeldWhileForking<order> held_while_forking;

// Calls of several streams, of which one runs them all when all have come to them; the others wait for the end.
class Joint {
 public:
  explicit Joint(std::size_t others) : to_come_(others) {}

  void wait_for_others() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return to_come_ == 0; });
  }
  void end(const Status& status) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    changed_.notify_all();
  }
  Status come_and_wait() {
    std::unique_lock lock(mutex_);
    --to_come_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return status_.has_value(); });
    return *status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t to_come_;
  std::optional<Status> status_;
};

// A communicator's calls keep their order also on several streams: what is queued waits for its turn. It waits only for
// what was queued earlier, so none waits for itself. With `order` held. joint: of calls that are on other streams, too.
void queue_in_order(HostStream& stream, std::vector<Queued> calls, const std::shared_ptr<Joint>& joint = nullptr) {
  const std::vector<Turn> turns = turns_of(calls);
  stream.push([calls = std::move(calls), turns, joint] {
    if (joint) joint->wait_for_others();
    for (const Turn& turn : turns) wait_for_queued(*turn.comm, turn.before);
    Status status = guarded([&] { return run_group_now(calls); });
    for (const Turn& turn : turns) {
      (void)finish(status, turn.comm);
      // Release: the calls' results come before their end.
      turn.comm->ended.store(turn.before + turn.calls, std::memory_order_release);
      turn.comm->ended.notify_all();
    }
    if (joint) joint->end(status);
    return status;
  });
  // After what could fail. Relaxed: read by this thread, or under the lock.
  for (const Turn& turn : turns) turn.comm->queued.fetch_add(turn.calls, std::memory_order_relaxed);
}

void queue(HostStream& stream, std::vector<Queued> calls) {
  const std::lock_guard lock(order);
  queue_in_order(stream, std::move(calls));
}

// Calls that cannot be told apart by their streams: of one communicator on several. They run in the order in which they
// were made, on the first one's stream. A caller that would block waits for the end.
Status run_jointly(std::vector<Queued> calls) {
  std::vector<HostStream*> streams;
  bool blocks = false;
  for (const Queued& call : calls) {
    blocks = blocks || call.stream == nullptr;
    if (call.stream != nullptr && std::ranges::find(streams, call.stream) == streams.end())
      streams.push_back(call.stream);
  }
  const auto joint = std::make_shared<Joint>(streams.size() - 1 + (blocks ? 1 : 0));
  {
    const std::lock_guard lock(order);
    queue_in_order(*streams.front(), std::move(calls), joint);
    for (HostStream* other : std::span(streams).subspan(1)) other->push([joint] { return joint->come_and_wait(); });
  }
  return blocks ? joint->come_and_wait() : Status();
}

// Of a group's calls those that have a communicator or a stream in common with the first one, directly or by others.
std::vector<Queued> take_connected(std::vector<Queued>& calls) {
  std::vector<Queued> connected{calls.front()};
  std::vector<bool> taken(calls.size(), false);
  taken[0] = true;
  for (bool more = true; std::exchange(more, false);)
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto touches = [&](const Queued& one) {
        return one.comm == calls[i].comm || one.stream == calls[i].stream;
      };
      if (taken[i] || std::ranges::none_of(connected, touches)) continue;
      taken[i] = more = true;
      connected.push_back(calls[i]);
    }
  // In the order in which they were made.
  connected.clear();
  std::vector<Queued> rest;
  for (std::size_t i = 0; i < calls.size(); ++i) (taken[i] ? connected : rest).push_back(calls[i]);
  calls = std::move(rest);
  return connected;
}

// A group's calls by the stream that they are for; those without one run here, last, so that nothing waits for them.
// any_begun: others of the group, on GPU memory.
Status run_group(std::vector<Queued> calls, bool any_begun) {
  std::vector<Queued> here;
  while (!calls.empty()) {
    std::vector<Queued> together = take_connected(calls);
    HostStream* const stream = together.front().stream;
    const bool one_stream = std::ranges::all_of(together, [&](const Queued& call) { return call.stream == stream; });
    const bool blocks = std::ranges::any_of(together, [](const Queued& call) { return call.stream == nullptr; });
    any_begun = any_begun || !blocks;
    if (blocks)
      here = std::move(together);
    else if (one_stream)
      queue(*stream, std::move(together));
    else
      (void)run_jointly(std::move(together));
  }
  if (here.empty()) return {};
  if (std::ranges::any_of(here, [](const Queued& call) { return call.stream != nullptr; }))
    return run_jointly(std::move(here));
  for (const Queued& call : here) after_queued(*call.comm);
  Status status = run_group_now(here);
  // Refused after all, for another thread has come in the meantime: the group is half done.
  if (any_begun && status.code() == Code::invalid_usage)
    for (const Queued& call : here) call.comm->communicator->break_off_group(status, true);
  return status;
}

// Communicators whose first call on GPU memory this is have their ranks meet, all side by side: other ranks may name
// them in another order. After a failure, which none of them outlives, `failing` is the one that it is of.
Status meet_on_gpus(std::span<const OnDevice> on_device, const paceComm*& failing) {
  std::vector<paceComm*> first;
  for (const OnDevice& call : on_device) {
    failing = call.comm;
    PACE_TRY(call.comm->communicator->failure());
    if (!call.comm->communicator->knows_gpus() && std::ranges::find(first, call.comm) == first.end())
      first.push_back(call.comm);
  }
  if (first.empty()) return {};
  const auto gpu = current_device();
  Status first_failure;
  std::mutex mutex;
  const auto meet = [&](std::size_t i) {
    const Status met = guarded([&] { return inside(*first[i], [](Communicator& c) { return c.meet_on_gpus(); }); });
    const std::lock_guard lock(mutex);
    if (met.ok() || !first_failure.ok()) return;
    first_failure = met;
    failing = first[i];
    for (paceComm* const other : first)
      if (other != first[i]) other->communicator->break_off_group(met, false);
  };
  failing = first.front();
  {
    std::vector<std::jthread> others;
    {
      const SignalsBlocked in_others;
      for (std::size_t i = 1; i < first.size(); ++i)
        others.emplace_back([&, i] {
          if (gpu.ok()) (void)use_device(*gpu);
          meet(i);
        });
    }
    meet(0);
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
                     const paceComm*& failing) {
  std::vector<OnDevice> those;
  std::vector<void*> streams;  // in the order in which they come
  for (const OnDevice& call : on_device) {
    if (call.comm->communicator->gpus_direct()) continue;
    those.push_back(call);
    if (std::ranges::find(streams, call.stream) == streams.end()) streams.push_back(call.stream);
  }
  if (those.empty()) return {};
  // Messages go together by their streams, as they do where they are launched.
  std::ranges::stable_sort(those, {}, [&](const OnDevice& call) {
    return is_message(call.request.which) ? std::ranges::find(streams, call.stream) : streams.end();
  });
  for (const OnDevice& call : those) {
    const Communicator& whose = *call.comm->communicator;
    brought.copies.add(call.request, call.stream, whose.rank(), whose.size());
    brought.comms.push_back(call.comm);
  }
  failing = those.front().comm;
  PACE_TRY(brought.copies.load());
  std::vector<Queued> on_host;
  for (std::size_t i = 0; i < those.size(); ++i) on_host.push_back({those[i].comm, brought.copies.on_host(i), nullptr});
  std::erase_if(on_device, [](const OnDevice& call) { return !call.comm->communicator->gpus_direct(); });
  calls.insert(calls.begin(), on_host.begin(), on_host.end());
  return {};
}

// After the group has run, or failed: a communicator that lives on although another one failed has done its part.
Status store(Brought& brought, const Status& run) {
  Status stored = run;
  for (std::size_t i = 0; i < brought.comms.size(); ++i) {
    if (!run.ok() && !brought.comms[i]->communicator->failure().ok()) continue;
    const Status one = brought.copies.store(i);
    if (stored.ok()) stored = one;
  }
  return stored;
}

// A group's calls that are launched on GPUs: first the messages of each communicator and stream, together, then the
// collectives in order. They only begin here, so no order among communicators can block. Those that have begun lose
// their communicator; after a failure `failing` is the one that it is of.
Status run_group_on_device(std::vector<OnDevice>& calls, const paceComm*& failing) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].comm == nullptr || !is_message(calls[i].request.which)) continue;
    paceComm* const comm = calls[i].comm;
    void* const stream = calls[i].stream;
    const auto goes_along = [&](const OnDevice& call) {
      return call.comm == comm && call.stream == stream && is_message(call.request.which);
    };
    failing = comm;
    std::vector<Request> messages;
    for (const OnDevice& call : calls)
      if (goes_along(call)) messages.push_back(call.request);
    PACE_TRY(inside(*comm, [&](Communicator& c) { return c.run_messages_on_device(messages, stream); }));
    for (OnDevice& call : calls)
      if (goes_along(call)) call.comm = nullptr;
  }
  for (OnDevice& call : calls)
    if (call.comm != nullptr) {
      failing = call.comm;
      PACE_TRY(inside(*call.comm, [&](Communicator& c) { return c.run_on_device(call.request, call.stream); }));
      call.comm = nullptr;
    }
  return {};
}

// Whether another thread is inside, as far as can be told: those with calls queued are inside by right.
Status check_alone(paceComm& comm) {
  const std::uint64_t queued = comm.queued.load(std::memory_order_relaxed);
  if (comm.ended.load(std::memory_order_acquire) != queued) return {};
  const Hold hold(*comm.communicator);
  return hold.held() ? Status() : two_threads();
}

// Before any call of a group begins: what would be refused later, when others have begun.
Status check_group(std::span<const OnDevice> on_device, std::span<const Queued> calls) {
  // Messages to oneself go together: those of a communicator, on GPU memory those of a stream.
  std::map<std::tuple<paceComm*, bool, void*>, std::vector<const Request*>> to_self;
  const auto look = [&](paceComm* comm, const Request& request, bool there, void* stream) {
    if (is_message(request.which) && request.root == comm->communicator->rank())
      to_self[{comm, there, stream}].push_back(&request);
  };
  const bool some_begin_before =
      !on_device.empty() || std::ranges::any_of(calls, [](const Queued& call) { return call.stream != nullptr; });
  for (const OnDevice& call : on_device) {
    look(call.comm, call.request, true, call.stream);
    PACE_TRY(check_alone(*call.comm));
  }
  for (const Queued& call : calls) {
    look(call.comm, call.request, false, nullptr);
    if (call.stream == nullptr && some_begin_before) PACE_TRY(check_alone(*call.comm));
  }
  for (const auto& [whose, messages] : to_self)
    PACE_TRY(messages_to_self(messages, std::get<0>(whose)->communicator->rank()).status());
  return {};
}

// Whether the arguments of a call are wrong, and its communicator goes on.
bool is_of_arguments(const Status& status, const paceComm& comm) {
  const bool may_be = status.code() == Code::invalid_argument || status.code() == Code::invalid_usage ||
                      status.code() == Code::mismatch;
  return may_be && comm.communicator->failure().ok();
}

// A group has failed on GPUs: whoever waits for the calls that have not begun, on host memory too, will not get them.
// Where none has begun, and that for its arguments, all is as it was.
void break_off_undone(std::span<const OnDevice> on_device, std::span<const Queued> calls, const Status& cause,
                      const paceComm* failing) {
  const bool any_begun = std::ranges::find(on_device, nullptr, &OnDevice::comm) != on_device.end();
  if (!any_begun && failing != nullptr && is_of_arguments(cause, *failing)) return;
  for (const OnDevice& call : on_device)
    if (call.comm != nullptr) call.comm->communicator->break_off_group(cause, call.comm == failing);
  for (const Queued& call : calls) call.comm->communicator->break_off_group(cause, call.comm == failing);
}

// The calls of a group, at its end.
Status run_calls(std::vector<Queued> calls, std::vector<OnDevice> device_calls) {
  for (const Queued& call : calls) PACE_TRY(check(call.comm));
  for (const OnDevice& call : device_calls) PACE_TRY(check(call.comm));
  PACE_TRY(check_group(device_calls, calls));
  const paceComm* failing = nullptr;
  Brought brought;
  Status begun = guarded([&]() -> Status {
    PACE_TRY(meet_on_gpus(device_calls, failing));
    for (const OnDevice& call : device_calls) {
      failing = call.comm;
      PACE_TRY(call.comm->communicator->check_memory(call.request, call.stream));
    }
    PACE_TRY(bring_to_host(device_calls, calls, brought, failing));
    return run_group_on_device(device_calls, failing);
  });
  if (!begun.ok()) {
    break_off_undone(device_calls, calls, begun, failing);
    return begun;
  }
  if (calls.empty()) return {};
  std::vector<paceComm*> all;
  all.reserve(calls.size());
  for (const Queued& call : calls) all.push_back(call.comm);
  const Status run = run_group(std::move(calls), !device_calls.empty());
  const bool refused =
      !run.ok() && std::ranges::all_of(all, [](paceComm* comm) { return comm->communicator->failure().ok(); });
  return refused ? run : store(brought, run);
}

}  // namespace

Status run_familiar(paceComm* comm, const Arguments& arguments, bool& done) {
  if (!is_valid(comm) || comm->in_child() || in_group()) return {};
  after_queued(*comm);
  const Hold hold(*comm->communicator);
  if (!hold.held()) [[unlikely]]
    return {};
  FamiliarCalls::Call& call = comm->familiar->place(arguments);
  if (call.arguments != arguments || !call.any) return {};
  if (gpus_in_use()) {
    const auto on_device = is_on_device(call.checked.request, call.checked.uses.send, call.checked.uses.recv, nullptr);
    if (!on_device.ok() || *on_device) return {};
  }
  done = true;
  return comm->communicator->run(call.checked.request, call.plan);
}

Status submit(paceComm* comm, const Arguments& arguments, const Checked& call, void* stream) {
  const Request& request = call.request;
  if (call.on_device) {
    if (in_group()) {
      group.device_calls.push_back({comm, request, stream});
      return {};
    }
    return inside(*comm, [&](Communicator& communicator) {
      return is_message(request.which) ? communicator.run_messages_on_device({&request, 1}, stream)
                                       : communicator.run_on_device(request, stream);
    });
  }
  if (stream == nullptr && !in_group()) [[likely]]
    return run_now(comm, arguments, call);
  auto queue_on = stream_of(stream);
  if (!queue_on.ok()) return queue_on.status();
  if (stream != nullptr && (*queue_on)->in_child()) return HostStream::no_thread();
  if (in_group()) {
    group.calls.push_back({comm, request, *queue_on});
  } else {
    queue(**queue_on, {{comm, request, *queue_on}});
  }
  return {};
}

// A call of an open group that was refused: the group starts nothing.
void spoil_group(const Status& status) {
  if (in_group() && group.error.ok()) group.error = status;
}

bool is_in_group(const HostStream* stream) {
  return in_group() && std::ranges::any_of(group.calls, [&](const Queued& call) { return call.stream == stream; });
}

Status start_group() {
  if (group.depth++ == 0) open_groups.fetch_add(1, std::memory_order_relaxed);
  return {};
}

Status end_group() {
  if (group.depth == 0) return Status(Code::invalid_usage, "paceGroupEnd without paceGroupStart");
  if (--group.depth > 0) return {};
  open_groups.fetch_sub(1, std::memory_order_relaxed);
  std::vector<Queued> calls = std::exchange(group.calls, {});
  std::vector<OnDevice> device_calls = std::exchange(group.device_calls, {});
  std::vector<paceComm*> whose;
  whose.reserve(calls.size() + device_calls.size());
  for (const Queued& call : calls) whose.push_back(call.comm);
  for (const OnDevice& call : device_calls) whose.push_back(call.comm);
  Status status = std::exchange(group.error, Status());
  if (status.ok()) status = run_calls(std::move(calls), std::move(device_calls));
  if (!status.ok())
    for (paceComm* comm : whose) (void)finish(status, comm);
  return status;
}

}  // namespace paceline::api
