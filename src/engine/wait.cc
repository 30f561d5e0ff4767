#include "engine/wait.h"

#include <fmt/format.h>
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "base/configuration.h"
#include "base/interrupted.h"
#include "base/log.h"
#include "base/long_wait.h"
#include "engine/company.h"

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
// How often the program is asked whether it wants to wait on: an interpreter asks its signals, for which it may have to
// wait for its lock.
constexpr double asked_each_s = 0.1;

// The transport of `execution` failed: end the communicator.
Status end_of(Execution& execution) { return execution.wiring().membership->report(execution.failure()); }

// An execution that is under way, and how long it has not got on. Each has a time of its own, which the steps of others
// do not put off.
struct Driven {
  Execution* execution = nullptr;
  std::size_t number = 0;
  bool timed = false;  // since its last step
  // Whom it has seen to be gone; -1: nobody. What that rank did before it left, messages of pairs or a collective of
  // this number, may be there: what is missing after one more look does not come.
  int gone = -1;
  Clock::time_point since;
  double doubted_us = doubt_us;
  double asked_s = 0;  // when the program was last asked whether it wants to wait
  LongWait told;       // of how long it has waited
};

enum class Leaver : std::uint8_t { none, left_before, ended_another };

Leaver leaver(const Wiring& wiring, const Transport& transport, const Execution::Wait& wait, int& gone) {
  std::uint32_t last = 0;
  if (!wiring.membership->has_left(wait.rank, &last) && !transport.has_left(wait.rank, &last)) return Leaver::none;
  if (is_collective(wait.call) && comes_before(last, wait.call.sequence)) return Leaver::left_before;
  if (!transport.immediate()) return Leaver::none;  // its connection ends behind its last message
  const bool looked_again = gone == wait.rank;
  gone = wait.rank;
  if (!looked_again) return Leaver::none;
  return is_collective(wait.call) ? Leaver::ended_another : Leaver::left_before;
}

Status left(const Wiring& wiring, const Execution::Wait& wait, Leaver how) {
  const bool before = how == Leaver::left_before;
  Status::Detail detail;
  detail.code = before ? Code::remote : Code::mismatch;
  detail.rank = wait.rank;
  detail.collective = title(wait.call);
  detail.sequence = wait.call.sequence;
  if (before) {
    detail.message = fmt::format("rank {} left before {}: it closed its communicator, or its program ended", wait.rank,
                                 describe(wait.call));
  } else {
    detail.peer = wiring.rank;
    detail.message = fmt::format(
        "rank {} called {}, but rank {} ended #{} without its part in that, and left: every rank must make the same "
        "calls in the same order",
        wiring.rank, describe(wait.call), wait.rank, wait.call.sequence);
  }
  return Status(std::move(detail));
}

Status interruption(int rank, const Call& call) {
  Status::Detail detail;
  detail.code = Code::aborted;
  detail.rank = rank;
  detail.collective = title(call);
  detail.sequence = call.sequence;
  detail.message = fmt::format("rank {} was interrupted in {}", rank, describe(call));
  return Status(std::move(detail));
}

Transport& transport_to(const Wiring& wiring, int rank) {
  return *wiring.transports[wiring.routes.transport[static_cast<std::size_t>(rank)]];
}

// What a group receives comes in any order: of each rank but the one waited for first, too, it may not come at all.
Attempt compare_other_receives(const Execution& execution, const Wiring& wiring, int first) {
  for (std::size_t lane = 0; lane < execution.lanes(); ++lane) {
    const Execution::Wait wait = execution.waiting_for(lane);
    if (wait.owed && !is_collective(wait.call) && wait.rank != first &&
        transport_to(wiring, wait.rank).compare(wait.rank, wait.call, true) == Attempt::failed)
      return Attempt::failed;
  }
  return Attempt::done;
}

// For whom it waits, should another rank ask who holds it up; -1: for nobody, or not for long.
void note_wait(Execution& execution, int rank) {
  // Relaxed: read by the monitor, for diagnoses only.
  execution.wiring().membership->activity.waiting_for.store(rank, std::memory_order_relaxed);
}

// Whether waiting is in vain: the other rank left, or is in another call. Ok: keep waiting.
Status doubt(Execution& execution, const Execution::Wait& wait, int& gone) {
  Wiring& wiring = execution.wiring();
  if (wait.rank < 0 || wait.rank == wiring.rank) return {};
  const Transport& transport = transport_to(wiring, wait.rank);
  // On the others, too: the ranks that wait for this one, or have called something else, may be there.
  for (Transport* each : wiring.transports) {
    if (each == nullptr) continue;
    const bool waits_there = each == &transport;
    if (each->compare(waits_there ? wait.rank : -1, wait.call, waits_there && wait.owed) == Attempt::failed)
      return end_of(execution);
  }
  if (compare_other_receives(execution, wiring, wait.rank) == Attempt::failed) return end_of(execution);
  const Leaver how = leaver(wiring, transport, wait, gone);
  return how == Leaver::none ? Status() : wiring.membership->report(left(wiring, wait, how));
}

// Until when this thread, bound to a CPU of its own, and another program's have turns there.
thread_local Clock::time_point turns_until;
// What this thread knows where ranks share CPUs.
thread_local Company company;

// One wait: from the last step that could be taken to the next.
class Wait {
 public:
  // `all`: those under way, whenever this looks.
  explicit Wait(const std::span<Driven>& all) : all_(all) {
    for (const Driven& one : all) {
      oversubscribed_ |= one.execution->wiring().oversubscribed;
      node_ranks_ = std::max(node_ranks_, one.execution->wiring().node_ranks);
    }
  }

  // Some have got on. An error: another one waits in vain.
  Status over() {
    measure();
    const bool looked = timed_ && looks_ != 0;
    looks_ = 0;
    if (all_.size() == 1) return {};
    if (looked) return watch(Clock::now());
    stepped_ = true;
    // Reading the clock costs as much as a step.
    return (++steps_ & 63U) == 0 ? watch(Clock::now()) : Status();
  }

  // Something has got on, or all is done.
  void measure() const {
    if (oversubscribed_ && looks_ != 0 && company.measures()) company.waited(microseconds_since(begin_));
  }

  // Spend a little time. An error ends the wait.
  Status pause() {
    for (const Driven& one : all_) {
      Membership& membership = *one.execution->wiring().membership;
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
      announced_ = false;
    }
    const auto now = Clock::now();
    const double elapsed = duration<double, std::micro>(now - begin_).count();
    const bool in_turns = !oversubscribed_ && now < turns_until;
    const double spin = configuration().spin;
    yielding_ = oversubscribed_ || elapsed > (in_turns ? std::max(spin, turn_us) : spin);
    PACE_TRY(watch(now));
    if (!yielding_) return {};
    if (oversubscribed_ ? yields_ < crowded_yields && !company.sleeps(now) : elapsed < yield_us && !in_turns) {
      ++yields_;
      yield(now);
    } else {
      rest(now, elapsed);
    }
    return {};
  }

 private:
  // Look for reasons why those that have not got on for some time might wait in vain.
  Status watch(Clock::time_point now) {
    const auto apart = now - looked_;
    // Many steps may take so long.
    const bool ran = stepped_ || apart < not_running;
    looked_ = now;
    stepped_ = false;
    for (Driven& one : all_) {
      if (!one.timed) {
        one.timed = true;
        one.gone = -1;
        one.since = now;
        one.doubted_us = doubt_us;
        one.asked_s = 0;
        one.told = {};
        continue;
      }
      if (!ran) one.since += apart;
      const double waited = duration<double, std::micro>(now - one.since).count();
      if (waited <= one.doubted_us) continue;
      one.doubted_us = waited + doubt_us;
      PACE_TRY(check(one, waited / 1e6));
    }
    return {};
  }

  static Status check(Driven& one, double seconds) {
    const Execution::Wait wait = one.execution->waiting_for();
    note_wait(*one.execution, wait.rank);
    PACE_TRY(doubt(*one.execution, wait, one.gone));
    const Wiring& wiring = one.execution->wiring();
    tell(one, wait, seconds);
    if (seconds > one.asked_s + asked_each_s) {
      one.asked_s = seconds;
      note_wait(*one.execution, -1);  // in the program's handlers it waits for nobody
      if (interrupted()) return wiring.membership->report(interruption(wiring.rank, wait.call));
      note_wait(*one.execution, wait.rank);
    }
    if (seconds < wiring.timeout) return {};
    if (wait.rank < 0) return {};  // others of the group are waited for, or the next look moves on
    return wiring.membership->timed_out(wait.rank, wait.call, seconds);
  }

  static void tell(Driven& one, const Execution::Wait& wait, double seconds) {
    if (wait.rank < 0) return;
    const Wiring& wiring = one.execution->wiring();
    if (const auto level = one.told.notice(seconds))
      log(*level, wiring.rank, "has waited {:.0f} s for rank {} in {}; gives up after {:g} s (PACELINE_TIMEOUT)",
          seconds, wait.rank, describe(wait.call), wiring.timeout);
  }

  // How long it takes says something of other threads on this CPU.
  void yield(Clock::time_point now) const {
    sched_yield();
    const auto then = Clock::now();
    const double took_us = duration<double, std::micro>(then - now).count();
    if (oversubscribed_) return company.yielded(took_us, then, node_ranks_);
    if (took_us <= shared_cpu_us) return;
    const bool may_leave = all_.front().execution->wiring().home.go();
    if (!may_leave && took_us > turn_us) turns_until = then + between_turns;
  }

  // Announce sleep, have the caller look for a while, then sleep.
  void rest(Clock::time_point now, double elapsed) {
    if (announced_ && elapsed < announced_us_ + last_looks_us) {
      if (oversubscribed_ && !company.sleeps(now)) yield(now);
      return;
    }
    announced_us_ = elapsed;
    // Only a single transport can be slept on; with several, each in turn for a short while.
    std::size_t count = 0;
    for (const Driven& one : all_)
      for (Transport* transport : one.execution->wiring().transports) count += transport != nullptr ? 1 : 0;
    for (const Driven& one : all_) {
      for (Transport* transport : one.execution->wiring().transports) {
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

  const std::span<Driven>& all_;
  bool oversubscribed_ = false;
  int node_ranks_ = 1;
  bool yielding_ = false;
  bool timed_ = false;  // the clock has started
  bool announced_ = false;
  std::uint64_t looks_ = 0;
  std::uint64_t steps_ = 0;
  bool stepped_ = false;  // since the last look
  Clock::time_point looked_;
  int yields_ = 0;
  Clock::time_point begin_;
  double announced_us_ = 0;
};

// `all` shrinks: one that has ended, with nothing to go on to, is no more looked at, and its communicator's end is none
// of the others.
template <class GoOnWith>
Status drive(std::span<Driven> all, const GoOnWith& go_on) {
  Wait wait(all);
  for (;;) {
    bool moved = false;
    std::size_t under_way = 0;
    for (const Driven& each : all) {
      Driven one = each;
      bool begun = false;
      switch (one.execution->advance()) {
        case Execution::Turn::done:
          PACE_TRY(go_on(one.number, begun));
          if (!begun) continue;
          [[fallthrough]];
        case Execution::Turn::moved:
          moved = true;
          if (one.timed) note_wait(*one.execution, -1);
          one.timed = false;
          break;
        case Execution::Turn::stuck: break;
        case Execution::Turn::failed: return end_of(*one.execution);
      }
      all[under_way++] = one;
    }
    all = all.first(under_way);
    if (all.empty()) {
      wait.measure();
      return {};
    }
    if (moved) {
      PACE_TRY(wait.over());
      continue;
    }
    for (const Driven& one : all)
      for (Transport* transport : one.execution->wiring().transports)
        if (transport != nullptr && transport->progress() == Attempt::failed) return end_of(*one.execution);
    PACE_TRY(wait.pause());
  }
}

}  // namespace

// Alone, as most calls are: without memory of its own.
Status run(Execution& execution) {
  Driven one;
  one.execution = &execution;
  return drive(std::span(&one, 1), [](std::size_t, bool&) { return Status(); });
}

Status run(std::span<Execution* const> executions, const GoOn& go_on) {
  std::vector<Driven> all(executions.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].execution = executions[i];
    all[i].number = i;
  }
  return drive(std::span(all), go_on);
}

}  // namespace paceline
