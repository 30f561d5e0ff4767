// A group's calls on host memory: now, and on streams.

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "api/group.h"
#include "base/fork_hold.h"
#include "base/interrupted.h"
#include "base/origin.h"

namespace paceline::api {
namespace {

Status run_group_now(const std::vector<Queued>& calls) {
  std::set<paceComm*> distinct;
  for (const Queued& call : calls) distinct.insert(call.comm);
  std::deque<Hold> holds;
  for (paceComm* const comm : distinct) {
    PACE_TRY(beside_calls(comm, [&](Communicator& communicator) { holds.emplace_back(communicator); }));
    if (!holds.back().held()) return two_threads();
  }
  std::vector<Communicator*> communicators;
  std::vector<Request> requests;
  for (const Queued& call : calls) {
    communicators.push_back(call.comm->communicator.get());
    requests.push_back(call.request);
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

// Calls of several streams, of which one runs them all when all have come to them; the others wait for the end. It may
// come before: then the calls do not run.
class Joint {
 public:
  explicit Joint(std::size_t others) : to_come_(others) {}

  // Ok: all have come. Else why the calls are not to run.
  Status wait_for_others() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return to_come_ == 0 || status_.has_value(); });
    return status_.value_or(Status());
  }
  void end(const Status& status) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    changed_.notify_all();
  }
  // `when_interrupted` brings the end about.
  template <class End>
  Status come_and_wait(End when_interrupted) {
    std::unique_lock lock(mutex_);
    --to_come_;
    changed_.notify_all();
    while (!changed_.wait_for(lock, between_questions, [this] { return status_.has_value(); })) {
      lock.unlock();
      if (interrupted()) when_interrupted();
      if (!origin_.is_here()) return HostStream::no_thread();  // the handler has forked
      lock.lock();
    }
    return *status_;
  }

 private:
  const Origin origin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t to_come_;
  std::optional<Status> status_;
};

// The communicator's last error. Others wait for what comes after it, so no lack of memory for the sentence may stop
// that: the stream tells the status all the same.
void note(const Status& status, paceComm* comm) noexcept {
  try {
    if (!status.ok()) note_in_group(status, comm);
  } catch (const std::bad_alloc&) {
  }
}

// A communicator's calls keep their order also on several streams: what is queued waits for its turn. It waits only for
// what was queued earlier, so none waits for itself. With `order` held. joint: of calls that are on other streams, too.
void queue_in_order(HostStream& stream, std::vector<Queued> calls, const std::shared_ptr<Joint>& joint = nullptr) {
  const std::vector<Turn> turns = turns_of(calls);
  stream.push([calls = std::move(calls), turns, joint] {
    Status status = joint ? joint->wait_for_others() : Status();
    for (const Turn& turn : turns) (void)wait_for_queued(*turn.comm, turn.before);  // this thread asks nobody
    if (status.ok()) status = guarded([&] { return run_group_now(calls); });
    for (const Turn& turn : turns) {
      note(status, turn.comm);
      {
        const std::lock_guard lock(turn.comm->ended_mutex);
        // Release: the calls' results come before their end.
        turn.comm->ended.store(turn.before + turn.calls, std::memory_order_release);
      }
      turn.comm->ended_changed.notify_all();
    }
    if (joint) joint->end(status);
    return status;
  });
  // After what could fail. Relaxed: read by this thread, or under the lock.
  for (const Turn& turn : turns) turn.comm->queued.fetch_add(turn.calls, std::memory_order_relaxed);
}

// Calls that cannot be told apart by their streams: of one communicator on several. They run in the order in which they
// were made, on the first one's stream. A caller that would block waits for the end.
Status run_jointly(std::vector<Queued> calls) {
  std::vector<HostStream*> streams;
  std::set<paceComm*> whose;
  bool blocks = false;
  for (const Queued& call : calls) {
    whose.insert(call.comm);
    blocks = blocks || call.stream == nullptr;
    if (call.stream != nullptr && std::ranges::find(streams, call.stream) == streams.end())
      streams.push_back(call.stream);
  }
  const auto joint = std::make_shared<Joint>(streams.size() - 1 + (blocks ? 1 : 0));
  const Status broken(Code::system, "a stream cannot take its part of a group: out of memory");
  {
    const std::lock_guard lock(order);
    queue_in_order(*streams.front(), std::move(calls), joint);
    try {
      for (HostStream* other : std::span(streams).subspan(1))
        other->push([joint] { return joint->come_and_wait([] {}); });
    } catch (...) {
      joint->end(broken);  // the first stream, and those that were told, would wait for the others
      throw;
    }
  }
  if (!blocks) return {};
  return joint->come_and_wait([&] {
    for (paceComm* const comm : whose) abort_with_calls(*comm);
  });
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

}  // namespace

void queue(HostStream& stream, std::vector<Queued> calls) {
  const std::lock_guard lock(order);
  queue_in_order(stream, std::move(calls));
}

Status run_on_host(std::vector<Queued> calls, bool any_begun) {
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
  for (const Queued& call : here) (void)after_queued(*call.comm);  // those of one that has ended fail
  Status status = run_group_now(here);
  // Refused after all, for another thread has come in the meantime: the group is half done.
  if (any_begun && status.code() == Code::invalid_usage)
    for (const Queued& call : here) break_off_group(call.comm, status, true);
  return status;
}

}  // namespace paceline::api
