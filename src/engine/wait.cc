#include "engine/wait.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>

#include <algorithm>

#include "base/configuration.h"

namespace paceline {
namespace {

using std::chrono::duration;

double microseconds_since(Clock::time_point begin) {
  return duration<double, std::micro>(Clock::now() - begin).count();
}

// How long a wait yields before it sleeps, and how long it then sleeps at a time. A wake-up from sleep costs about
// 10 us, so sleeping is for waits that are long anyway.
constexpr double yield_us = 1000;
constexpr double sleep_us = 1000;
// How long a rank that announced sleep goes on looking. A sender that did not see the announcement had its message on
// the way to memory by then, which takes a fraction of a microsecond: no fence is needed on its side, and the fence
// that the kernel could make on all CPUs (membarrier) would interrupt all ranks, thousands of times a second.
constexpr double last_looks_us = 20;
// With more ranks than CPUs, how often it yields: how long that is depends on how many others take their turns. Where
// they sleep too, it is soon over, and this CPU is free for ranks that wait for another one.
constexpr int crowded_yields = 500;
// A yield that takes so long has let another thread run, although there is a CPU for each rank.
constexpr double shared_cpu_us = 4;
// A yield of a rank bound to its CPU that takes so long has let another program have its turn, of milliseconds,
// whatever arrived in the meantime. For some time the rank then spins as long, so that it has turns of its own, and
// sleeps where it would yield: whoever sleeps is woken at once.
constexpr double turn_us = 500;
constexpr std::chrono::milliseconds between_turns{100};
// What one transport's sleep cannot notice of another's arrivals is noticed this late.
constexpr double shared_sleep_us = 200;
// The clock of a wait starts after so many looks in vain.
constexpr std::uint64_t looks_before_clock = 31;
// From when on, and how often, a wait looks for reasons why it might be in vain.
constexpr double doubt_us = 5000;

// The transport of `execution` failed: end the communicator.
Status end_of(Execution& execution) { return execution.wiring().membership->report(execution.failure()); }

// Whom a wait has seen to be gone. What it did before it left, messages of pairs or a collective of this number, may be
// there: what is missing after one more look does not come.
struct Gone {
  const Execution* execution = nullptr;
  int rank = -1;
};

enum class Leaver : std::uint8_t { none, left_before, ended_another };

Leaver leaver(Execution& execution, const Transport& transport, const Execution::Wait& wait, Gone& gone) {
  std::uint32_t last = 0;
  if (!execution.wiring().membership->has_left(wait.rank, &last) && !transport.has_left(wait.rank, &last))
    return Leaver::none;
  const bool is_of_pair = collective_of(wait.call) == Collective::send;
  if (!is_of_pair && comes_before(last, wait.call.sequence)) return Leaver::left_before;
  if (!transport.immediate()) return Leaver::none;  // its connection ends behind its last message
  const bool looked_again = gone.execution == &execution && gone.rank == wait.rank;
  if (gone.execution == nullptr) gone = {&execution, wait.rank};
  if (!looked_again) return Leaver::none;
  return is_of_pair ? Leaver::left_before : Leaver::ended_another;
}

Status left(const Wiring& wiring, const Execution::Wait& wait, Leaver how) {
  const bool before = how == Leaver::left_before;
  Status::Detail detail;
  detail.code = before ? Code::remote : Code::mismatch;
  detail.rank = wait.rank;
  detail.collective = title(wait.call);
  detail.sequence = wait.call.sequence;
  if (before) {
    detail.message =
        fmt::format("rank {} left before {}: it destroyed its communicator", wait.rank, describe(wait.call));
  } else {
    detail.peer = wiring.rank;
    detail.message = fmt::format(
        "rank {} called {}, but rank {} ended #{} without its part in that, and left: every rank must make the same "
        "calls in the same order",
        wiring.rank, describe(wait.call), wait.rank, wait.call.sequence);
  }
  return Status(std::move(detail));
}

// Whether waiting is in vain: the other rank left, or is in another call. Ok: keep waiting.
Status doubt(Execution& execution, Gone& gone) {
  Wiring& wiring = execution.wiring();
  const Execution::Wait wait = execution.waiting_for();
  if (wait.rank < 0 || wait.rank == wiring.rank) return {};
  const Transport& transport = *wiring.transports[wiring.routes.transport[static_cast<std::size_t>(wait.rank)]];
  // On the others, too: the ranks that wait for this one, or have called something else, may be there.
  for (Transport* each : wiring.transports) {
    if (each == nullptr) continue;
    const bool waits_there = each == &transport;
    if (each->compare(waits_there ? wait.rank : -1, wait.call, waits_there && wait.owed) == Attempt::failed)
      return end_of(execution);
  }
  const Leaver how = leaver(execution, transport, wait, gone);
  return how == Leaver::none ? Status() : wiring.membership->report(left(wiring, wait, how));
}

// Until when this thread and another program's have turns on their CPU.
thread_local Clock::time_point turns_until;

// One wait: from the last step that could be taken to the next.
class Wait {
 public:
  explicit Wait(std::span<Execution* const> executions) : executions_(executions) {
    for (Execution* execution : executions) oversubscribed_ |= execution->wiring().oversubscribed;
  }

  void over() { looks_ = 0; }

  // Spend a little time. An error ends the wait.
  Status pause() {
    for (Execution* execution : executions_) {
      Membership& membership = *execution->wiring().membership;
      if (membership.failed()) return membership.failure();
    }
    const std::uint64_t looks = looks_++;
    if (looks == 0) {
      yielding_ = oversubscribed_;
      timed_ = false;
      yields_ = 0;
    }
    // Reading the clock costs as much as a look at a mailbox: not each time, and not for a wait that ends at once.
    if (!yielding_ && (looks & 63U) != looks_before_clock) {
      if (looks != 0) _mm_pause();
      return {};
    }
    if (!timed_) {
      timed_ = true;
      begin_ = Clock::now();
      doubted_us_ = doubt_us;
      announced_ = false;
      gone_ = {};
    }
    const auto now = Clock::now();
    const double elapsed = duration<double, std::micro>(now - begin_).count();
    const bool in_turns = !oversubscribed_ && now < turns_until;
    const double spin = configuration().spin;
    yielding_ = oversubscribed_ || elapsed > (in_turns ? std::max(spin, turn_us) : spin);
    if (elapsed > doubted_us_) {
      doubted_us_ = elapsed + doubt_us;
      for (Execution* execution : executions_) PACE_TRY(check(*execution, elapsed / 1e6));
    }
    if (!yielding_) return {};
    if (oversubscribed_ ? yields_ < crowded_yields : elapsed < yield_us && !in_turns) {
      ++yields_;
      sched_yield();
      if (!oversubscribed_) share(microseconds_since(begin_) - elapsed);
      return {};
    }
    rest(elapsed);
    return {};
  }

 private:
  Status check(Execution& execution, double seconds) {
    PACE_TRY(doubt(execution, gone_));
    const Wiring& wiring = execution.wiring();
    if (seconds < wiring.timeout) return {};
    const Execution::Wait wait = execution.waiting_for();
    if (wait.rank < 0) return {};  // others of the group are waited for, or the next look moves on
    return wiring.membership->timed_out(wait.rank, wait.call, seconds);
  }

  // What a yield of so many microseconds says of other threads on this CPU, and what to do about it.
  void share(double yielded_us) {
    if (yielded_us <= shared_cpu_us) return;
    const bool may_leave = executions_.front()->wiring().home.go();
    if (!may_leave && yielded_us > turn_us) turns_until = Clock::now() + between_turns;
  }

  // Announce sleep, have the caller look for a while, then sleep.
  void rest(double elapsed) {
    if (announced_ && elapsed < announced_us_ + last_looks_us) {
      if (oversubscribed_) sched_yield();
      return;
    }
    announced_us_ = elapsed;
    // Only a single transport can be slept on; with several, each in turn for a short while.
    std::size_t count = 0;
    for (Execution* execution : executions_)
      for (Transport* transport : execution->wiring().transports) count += transport != nullptr ? 1 : 0;
    for (Execution* execution : executions_) {
      for (Transport* transport : execution->wiring().transports) {
        if (transport == nullptr) continue;
        if (!announced_) {
          transport->announce_sleep();
        } else {
          transport->sleep(count == 1 ? sleep_us : shared_sleep_us);
        }
      }
    }
    announced_ = !announced_;
  }

  std::span<Execution* const> executions_;
  bool oversubscribed_ = false;
  bool yielding_ = false;
  bool timed_ = false;  // the clock has started
  bool announced_ = false;
  std::uint64_t looks_ = 0;
  int yields_ = 0;
  Gone gone_;
  Clock::time_point begin_;
  double doubted_us_ = doubt_us;
  double announced_us_ = 0;
};

template <class GoOnWith>
Status drive(std::span<Execution* const> executions, const GoOnWith& go_on) {
  Wait wait(executions);
  for (;;) {
    bool moved = false;
    bool done = true;
    for (std::size_t i = 0; i < executions.size(); ++i) {
      bool begun = false;
      switch (executions[i]->advance()) {
        case Execution::Turn::done:
          PACE_TRY(go_on(i, begun));
          if (!begun) continue;
          moved = true;
          break;
        case Execution::Turn::moved: moved = true; break;
        case Execution::Turn::stuck: break;
        case Execution::Turn::failed: return end_of(*executions[i]);
      }
      done = false;
    }
    if (done) return {};
    if (moved) {
      wait.over();
      continue;
    }
    for (Execution* execution : executions)
      for (Transport* transport : execution->wiring().transports)
        if (transport != nullptr && transport->progress() == Attempt::failed) return end_of(*execution);
    PACE_TRY(wait.pause());
  }
}

}  // namespace

Status run(std::span<Execution* const> executions) {
  return drive(executions, [](std::size_t, bool&) { return Status(); });
}

Status run(std::span<Execution* const> executions, const GoOn& go_on) { return drive(executions, go_on); }

}  // namespace paceline
