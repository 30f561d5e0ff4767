// From a checked call to its run: now, on a stream, or at the end of a group.

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "api/handle.h"

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

// A communicator's calls keep their order also on several streams: what is queued waits for its turn. It waits only for
// what was queued earlier, so none waits for itself.
void queue(HostStream& stream, std::vector<Queued> calls) {
  static std::mutex order;
  const std::lock_guard lock(order);
  const std::vector<Turn> turns = turns_of(calls);
  stream.push([calls = std::move(calls), turns] {
    for (const Turn& turn : turns) wait_for_queued(*turn.comm, turn.before);
    Status status = guarded([&] { return run_group_now(calls); });
    for (const Turn& turn : turns) {
      (void)finish(status, turn.comm);
      // Release: the calls' results come before their end.
      turn.comm->ended.store(turn.before + turn.calls, std::memory_order_release);
      turn.comm->ended.notify_all();
    }
    return status;
  });
  // After what could fail. Relaxed: read by this thread, or under the lock.
  for (const Turn& turn : turns) turn.comm->queued.fetch_add(turn.calls, std::memory_order_relaxed);
}

// A group's calls by the stream that they are for; those without one run here, last, so that nothing waits for them.
Status run_group(std::vector<Queued> calls) {
  std::vector<Queued> blocking;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    HostStream* stream = calls[i].stream;
    if (calls[i].comm == nullptr) continue;
    if (stream == nullptr) {
      blocking.push_back(calls[i]);
      continue;
    }
    std::vector<Queued> together;
    for (std::size_t j = i; j < calls.size(); ++j)
      if (calls[j].comm != nullptr && calls[j].stream == stream) {
        together.push_back(calls[j]);
        calls[j].comm = nullptr;
      }
    queue(*stream, std::move(together));
  }
  for (const Queued& call : blocking) after_queued(*call.comm);
  return blocking.empty() ? Status() : run_group_now(blocking);
}

// Begin a call, or the messages of a group, on the GPU.
template <class Begin>
Status begin_on_device(paceComm* comm, Begin begin) {
  after_queued(*comm);
  const Hold hold(*comm->communicator);
  return hold.held() ? begin(*comm->communicator) : two_threads();
}

// A group's calls on GPU memory: first the messages of each communicator and stream, together, then the collectives in
// order. They only begin here, so no order among communicators can block.
Status run_group_on_device(std::vector<OnDevice> calls) {
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (calls[i].comm == nullptr || !is_message(calls[i].request.which)) continue;
    paceComm* const comm = calls[i].comm;
    std::vector<Request> messages;
    for (std::size_t j = i; j < calls.size(); ++j)
      if (calls[j].comm == comm && calls[j].stream == calls[i].stream && is_message(calls[j].request.which)) {
        messages.push_back(calls[j].request);
        calls[j].comm = nullptr;
      }
    PACE_TRY(
        begin_on_device(comm, [&](Communicator& c) { return c.run_messages_on_device(messages, calls[i].stream); }));
  }
  for (const OnDevice& call : calls)
    if (call.comm != nullptr)
      PACE_TRY(begin_on_device(call.comm, [&](Communicator& c) { return c.run_on_device(call.request, call.stream); }));
  return {};
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
    return begin_on_device(comm, [&](Communicator& communicator) {
      return is_message(request.which) ? communicator.run_messages_on_device({&request, 1}, stream)
                                       : communicator.run_on_device(request, stream);
    });
  }
  if (stream == nullptr && !in_group()) [[likely]]
    return run_now(comm, arguments, call);
  auto queue_on = stream_of(stream);
  if (!queue_on.ok()) return queue_on.status();
  if (in_group()) {
    group.calls.push_back({comm, request, *queue_on});
  } else {
    queue(**queue_on, {{comm, request, *queue_on}});
  }
  return {};
}

// A call of an open group that failed its checks: the group starts nothing.
void spoil_group(const Status& status) {
  if (in_group() && group.error.ok()) group.error = status;
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
  PACE_TRY(std::exchange(group.error, Status()));
  for (const Queued& call : calls) PACE_TRY(check(call.comm));
  for (const OnDevice& call : device_calls) PACE_TRY(check(call.comm));
  PACE_TRY(run_group_on_device(std::move(device_calls)));
  return calls.empty() ? Status() : run_group(std::move(calls));
}

}  // namespace paceline::api
