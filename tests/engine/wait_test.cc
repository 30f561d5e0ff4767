#include "engine/wait.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "algorithms/table.h"
#include "engine/fakes.h"
#include "transport/shared_memory.h"

namespace paceline {
namespace {

using Floats = std::vector<float>;

Call message(std::uint32_t number) {
  return make_call(Collective::send, DataType::float32, Operation::sum, 0, 1, number);
}

Status nothing_more(std::size_t, bool&) { return {}; }

// A rank that has sent to ranks 1 and 2 in all-reduce #5; rank 2 takes nothing.
struct Sending : FakeRank {
  Sending() : execution(wiring) {
    writer.send({1, 2}, 0, 1);
    execution.add(writer.plan, all_reduce(5), memory_of(input, output));
    transport.left = {0, 0};
    transport.held_by = 2;
  }

  Status run() { return paceline::run(execution); }

  PlanWriter writer;
  Floats input{1};
  Floats output;
  Execution execution;
};

}  // namespace

TEST_CASE("wait: what has nothing to wait for ends at once") {
  CHECK(run({}, nothing_more).ok());
  Waiting rank;
  rank.transport.deliver(0, 1, bytes_of({5}));
  CHECK(rank.run().ok());
  CHECK(rank.output == Floats{5});
  CHECK(rank.transport.log.empty());
}

TEST_CASE("wait: executions run to their ends side by side") {
  Waiting one;
  Waiting other;
  other.transport.deliver(0, 1, bytes_of({6}));
  one.transport.on = [&](const std::string&) {
    if (one.transport.log.size() == 100) {
      CHECK(other.output == Floats{6});
      one.transport.deliver(0, 1, bytes_of({5}));
    }
  };
  Execution* both[] = {&one.execution, &other.execution};
  CHECK(run(both, nothing_more).ok());
  CHECK(one.output == Floats{5});
}

TEST_CASE("wait: an execution that has ended goes on to what comes next while another one waits") {
  Waiting one;
  Waiting other;
  one.transport.deliver(0, 1, bytes_of({5}));
  int ended = 0;
  const auto go_on = [&](std::size_t number, bool& begun) {
    if (number != 0 || ended++ != 0) return Status();
    CHECK(one.output == Floats{5});
    one.transport.deliver(0, 1, bytes_of({7}));
    one.execution.clear();
    one.execution.add(one.writer.plan, all_reduce(2), memory_of(one.input, one.output));
    begun = true;
    return Status();
  };
  other.transport.on = [&](const std::string&) {
    if (one.output == Floats{7} && other.transport.taken(0, 1)) other.transport.deliver(0, 1, bytes_of({6}));
  };
  Execution* both[] = {&one.execution, &other.execution};
  CHECK(run(both, go_on).ok());
  CHECK(other.output == Floats{6});

  // What cannot be begun ends them all.
  Waiting third;
  third.transport.deliver(0, 1, bytes_of({5}));
  Execution* again[] = {&third.execution};
  CHECK(run(again, [](std::size_t, bool&) { return Status(Code::system, "no memory"); }).message() == "no memory");
}

TEST_CASE("wait: a transport's failure is reported, and the reason that stands is returned") {
  Waiting rank;
  rank.transport.broken = true;
  const Status status = rank.run();
  CHECK(status.code() == Code::remote);
  CHECK(status.message() == "reported: the line is dead");
  REQUIRE(rank.membership.reports.size() == 1);
  CHECK(rank.membership.reports[0].message() == "the line is dead");
}

TEST_CASE("wait: the end of the communicator ends it") {
  Waiting rank;
  rank.transport.on = [&](const std::string&) {
    if (rank.transport.log.size() == 100) rank.membership.end(Status(Code::aborted, "rank 2 aborted"));
  };
  CHECK(rank.run().message() == "rank 2 aborted");
  CHECK(rank.membership.reports.empty());
}

TEST_CASE("wait: so does the end of any of the communicators in a group") {
  Waiting one;
  Waiting other;
  other.membership.end(Status(Code::remote, "rank 2 died"));
  Execution* both[] = {&one.execution, &other.execution};
  CHECK(run(both, nothing_more).message() == "rank 2 died");
}

TEST_CASE("wait: but not the end of one that has done its part") {
  for (const bool first_has_ended : {true, false}) {
    Waiting one;
    Waiting other;
    Waiting& ended = first_has_ended ? one : other;
    Waiting& stuck = first_has_ended ? other : one;
    ended.transport.deliver(0, 1, bytes_of({5}));
    stuck.transport.on = [&](const std::string&) {
      if (stuck.transport.log.size() == 10) ended.membership.end(Status(Code::aborted, "rank 1 aborted"));
      if (stuck.transport.log.size() == 100) stuck.transport.deliver(0, 1, bytes_of({6}));
    };
    Execution* both[] = {&one.execution, &other.execution};
    CHECK(run(both, nothing_more).ok());
    CHECK(stuck.output == Floats{6});
    CHECK(ended.transport.log.empty());
  }
}

TEST_CASE("wait: what one communicator of a group does is no time gained for another one's ranks") {
  using std::chrono::milliseconds;
  for (const milliseconds pace : {milliseconds(0), milliseconds(10)}) {
    for (const bool is_elsewhere : {false, true}) {
      Waiting busy;
      Waiting stuck(all_reduce(5));
      stuck.wiring.timeout = 0.1;
      stuck.transport.other_call = is_elsewhere;
      const auto begin = std::chrono::steady_clock::now();
      auto last = begin;
      const auto move_on = [&] {
        const auto now = std::chrono::steady_clock::now();
        if (now < last + pace) return;
        last = now;
        busy.transport.deliver(0, 1, bytes_of({5}));
      };
      move_on();
      busy.transport.on = [&](const std::string&) {
        if (busy.transport.taken(0, 1)) move_on();
      };
      const auto go_on = [&](std::size_t, bool& begun) {
        if (last > begin + std::chrono::seconds(10)) return Status(Code::internal, "it waited for ever");
        if (pace == milliseconds(0)) move_on();
        busy.execution.clear();
        busy.execution.add(busy.writer.plan, all_reduce(2), memory_of(busy.input, busy.output));
        begun = true;
        return Status();
      };
      Execution* both[] = {&busy.execution, &stuck.execution};
      const Status status = run(both, go_on);
      CHECK(status.message() == (is_elsewhere ? "reported: they are elsewhere" : "too late"));
      CHECK(busy.membership.timeouts.empty());
      if (is_elsewhere) continue;
      REQUIRE(stuck.membership.timeouts.size() == 1);
      CHECK(stuck.membership.timeouts[0].rank == 1);
      CHECK(stuck.membership.timeouts[0].call == all_reduce(5));
      CHECK(stuck.membership.timeouts[0].seconds >= 0.1);
      CHECK(last < begin + std::chrono::seconds(5));
    }
  }
}

TEST_CASE("wait: at the timeout the rank and the call waited for are looked into") {
  for (bool oversubscribed : {false, true}) {
    Waiting rank(all_reduce(812));
    rank.wiring.timeout = 0.02;
    rank.wiring.oversubscribed = oversubscribed;
    CHECK(rank.run().message() == "too late");
    REQUIRE(rank.membership.timeouts.size() == 1);
    CHECK(rank.membership.timeouts[0].rank == 1);
    CHECK(rank.membership.timeouts[0].call == all_reduce(812));
    CHECK(rank.membership.timeouts[0].seconds >= 0.02);
  }
}

TEST_CASE("wait: at the timeout of a group, a communicator that has done its part is not accused of anything") {
  for (const bool first_has_ended : {true, false}) {
    Waiting one;
    Waiting other;
    Waiting& ended = first_has_ended ? one : other;
    Waiting& stuck = first_has_ended ? other : one;
    ended.transport.deliver(0, 1, bytes_of({5}));
    for (Waiting* each : {&one, &other}) each->wiring.timeout = 0.02;
    Execution* both[] = {&one.execution, &other.execution};
    CHECK(run(both, nothing_more).message() == "too late");
    CHECK(ended.membership.timeouts.empty());
    REQUIRE(stuck.membership.timeouts.size() == 1);
    CHECK(stuck.membership.timeouts[0].rank == 1);
  }
}

TEST_CASE("wait: at the timeout the rank that has yet to take the last message is looked into") {
  Sending rank;
  rank.wiring.timeout = 0.02;
  CHECK(rank.run().message() == "too late");
  REQUIRE(rank.membership.timeouts.size() == 1);
  CHECK(rank.membership.timeouts[0].rank == 2);
  CHECK(rank.membership.timeouts[0].call == all_reduce(5));
}

TEST_CASE("wait: a rank that left before the call does not take its message") {
  Sending rank;
  rank.membership.left[2] = 4;
  CHECK(rank.run().code() == Code::remote);
  REQUIRE(rank.membership.reports.size() == 1);
  CHECK(rank.membership.reports[0].message().starts_with("rank 2 left before all-reduce #5 "));
}

TEST_CASE("wait: the timeout counts from the last step taken") {
  Waiting rank;
  rank.writer.recv(1, 0, 1);
  rank.execution.clear();
  rank.execution.add(rank.writer.plan, all_reduce(1), memory_of(rank.input, rank.output));
  rank.wiring.timeout = 1;
  const auto begin = std::chrono::steady_clock::now();
  const auto late = [&](double seconds) {
    return std::chrono::steady_clock::now() - begin > std::chrono::duration<double>(seconds);
  };
  bool first = false;
  rank.transport.on = [&](const std::string&) {
    if (first || !late(0.2)) return;
    first = true;
    rank.transport.deliver(0, 1, bytes_of({5}));
  };
  CHECK(rank.run().message() == "too late");
  CHECK(first);
  CHECK(late(1.2));
  CHECK(rank.membership.timeouts[0].seconds >= 1);
}

TEST_CASE("wait: time in which this process did not run is not waited for anybody") {
  for (const bool in_group : {false, true}) {
    Waiting one;
    Waiting other;
    for (Waiting* each : {&one, &other}) each->wiring.timeout = 0.5;
    Clock::time_point runs_again;
    one.transport.on = [&](const std::string&) {
      if (one.transport.log.size() < 100) return;
      if (runs_again == Clock::time_point()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        runs_again = Clock::now();
        // What has come meanwhile is taken before anything is looked into.
        if (in_group) other.transport.deliver(0, 1, bytes_of({6}));
      }
      if (Clock::now() - runs_again > std::chrono::milliseconds(100) && one.transport.taken(0, 1))
        one.transport.deliver(0, 1, bytes_of({5}));
    };
    Execution* both[] = {&one.execution, &other.execution};
    CHECK((in_group ? run(both, nothing_more) : run(one.execution)).ok());
    CHECK(one.output == Floats{5});
  }

  // From then on it waits for as long as ever.
  Waiting rank;
  rank.wiring.timeout = 0.1;
  bool stopped = false;
  rank.transport.on = [&](const std::string&) {
    if (!std::exchange(stopped, true)) std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  };
  CHECK(rank.run().message() == "too late");
  CHECK(rank.membership.timeouts[0].seconds < 1);
}

TEST_CASE("wait: a rank found in another call ends it") {
  Waiting rank(all_reduce(5));
  rank.transport.other_call = true;
  CHECK(rank.run().message() == "reported: they are elsewhere");
  REQUIRE(rank.transport.compared.size() == 1);
  CHECK(rank.transport.compared[0] == std::pair(1, all_reduce(5)));
}

TEST_CASE("wait: a rank found in another call on another transport than the one waited on ends it") {
  Waiting rank(all_reduce(5));
  FakeTransport second;
  rank.wiring.transports[1] = &second;
  second.other_call = true;
  CHECK(rank.run().message() == "reported: they are elsewhere");
  REQUIRE(second.compared.size() == 1);
  CHECK(second.compared[0] == std::pair(-1, all_reduce(5)));
  CHECK(rank.transport.compared == std::vector{std::pair(1, all_reduce(5))});
}

TEST_CASE("wait: a rank that left before the call does not come") {
  Waiting rank(all_reduce(5));
  rank.membership.left[1] = 4;
  const Status status = rank.run();
  CHECK(status.code() == Code::remote);
  REQUIRE(rank.membership.reports.size() == 1);
  const Status reported = rank.membership.reports[0];
  CHECK(reported.message() ==
        "rank 1 left before all-reduce #5 of 4 float32, sum: it closed its communicator, or its program ended");
  CHECK(reported.detail().rank == 1);
  CHECK(reported.detail().collective == "all-reduce");
  CHECK(reported.detail().sequence == 5);
}

TEST_CASE("wait: a rank that left after the call may have sent what is waited for") {
  Waiting rank(all_reduce(5));
  rank.membership.left[1] = 5;
  rank.transport.on = [&](const std::string&) {
    if (rank.transport.compared.size() == 1 && rank.transport.taken(0, 1)) rank.transport.deliver(0, 1, bytes_of({5}));
  };
  CHECK(rank.run().ok());

  Waiting under_way(all_reduce(5));
  under_way.membership.left[1] = 5;
  under_way.transport.leaves_at_once = false;
  under_way.wiring.timeout = 0.03;
  CHECK(under_way.run().code() == Code::timeout);
  CHECK(under_way.membership.reports.empty());
}

TEST_CASE("wait: a rank that left after the call without having sent for it called another") {
  Waiting rank(all_reduce(5));
  rank.membership.left[1] = 6;
  CHECK(rank.run().code() == Code::mismatch);
  CHECK(rank.transport.compared.size() == 2);
  REQUIRE(rank.membership.reports.size() == 1);
  CHECK(rank.membership.reports[0].message() ==
        "rank 0 called all-reduce #5 of 4 float32, sum, but rank 1 ended #5 without its part in that, and left: every "
        "rank must make the same calls in the same order");
}

TEST_CASE("wait: another rank's leaving does not matter") {
  Waiting rank(all_reduce(5));
  rank.membership.left[2] = 1;
  rank.wiring.timeout = 0.02;
  CHECK(rank.run().code() == Code::timeout);
}

TEST_CASE("wait: whether a rank left before the call is known also where its number has wrapped") {
  Waiting before(all_reduce(2));
  before.membership.left[1] = 0xfffffffe;
  before.wiring.timeout = 1;
  CHECK(before.run().code() == Code::remote);

  Waiting after(all_reduce(0xfffffffe));
  after.membership.left[1] = 2;
  CHECK(after.run().code() == Code::mismatch);
}

TEST_CASE("wait: a message of a rank that left is looked for once more") {
  Waiting rank(message(7));
  rank.membership.left[1] = 3;
  CHECK(rank.run().code() == Code::remote);
  CHECK(rank.membership.reports[0].message().rfind("rank 1 left before send/receive #7", 0) == 0);
  CHECK(rank.transport.compared.size() == 2);

  // It had come before its sender left.
  Waiting lucky(message(7));
  lucky.membership.left[1] = 3;
  lucky.transport.on = [&](const std::string&) {
    if (lucky.transport.compared.size() == 1 && lucky.transport.taken(0, 1))
      lucky.transport.deliver(0, 1, bytes_of({5}));
  };
  CHECK(lucky.run().ok());
}

TEST_CASE("wait: where a connection ends behind its last message, leaving says nothing of messages") {
  Waiting rank(message(7));
  rank.transport.leaves_at_once = false;
  rank.membership.left[1] = 3;
  rank.wiring.timeout = 0.03;
  CHECK(rank.run().code() == Code::timeout);
}

TEST_CASE("wait: with more ranks than CPUs others get hundreds of turns before it sleeps, however long they are") {
  Waiting rank;
  rank.wiring.oversubscribed = true;
  std::size_t looks = 0;
  rank.transport.on = [&](const std::string& what) {
    if (what == "announce" && looks == 0) looks = rank.transport.log.size();
    if (looks != 0) return rank.transport.deliver(0, 1, bytes_of({5}));
    if (rank.transport.log.size() % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  CHECK(rank.run().ok());
  CHECK(looks > 300);
}

TEST_CASE("wait: long turns of the others do not put the timeout off") {
  Waiting rank;
  rank.wiring.oversubscribed = true;
  rank.wiring.timeout = 0.02;
  rank.transport.on = [](const std::string&) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  CHECK(rank.run().message() == "too late");
  CHECK(rank.transport.log.size() < 100);
}

TEST_CASE("wait: it announces sleep, looks for longer than a message may be under way, and only then sleeps") {
  for (bool oversubscribed : {false, true}) {
    Waiting rank;
    rank.wiring.oversubscribed = oversubscribed;
    std::size_t sleeps = 0;
    Clock::time_point announced;
    rank.transport.on = [&](const std::string& what) {
      if (what == "announce") announced = Clock::now();
      if (what != "sleep") return;
      // In between it has looked for what it waits for, and moved what can be moved.
      const auto& log = rank.transport.log;
      REQUIRE(log.size() >= 3);
      CHECK(log[log.size() - 2] == "progress");
      // Each sleep is a millisecond long, and notes its end.
      CHECK(Clock::now() - announced > std::chrono::microseconds(1020));
      CHECK(std::count(log.begin(), log.end(), "announce") == static_cast<std::ptrdiff_t>(++sleeps));
      if (sleeps == 3) rank.transport.deliver(0, 1, bytes_of({5}));
    };
    CHECK(rank.run().ok());
    CHECK(sleeps == 3);
    CHECK(rank.transport.slept_us == 1000);
  }
}

TEST_CASE("wait: what comes after the announcement is not slept through") {
  Waiting rank;
  rank.transport.on = [&](const std::string& what) {
    CHECK(what != "sleep");
    if (what == "announce") rank.transport.deliver(0, 1, bytes_of({5}));
  };
  CHECK(rank.run().ok());
}

TEST_CASE("wait: on two transports it sleeps in turn, and shorter") {
  Waiting rank;
  FakeTransport second;
  rank.wiring.transports[1] = &second;
  second.on = [&](const std::string& what) {
    if (what == "sleep") rank.transport.deliver(0, 1, bytes_of({5}));
  };
  CHECK(rank.run().ok());
  CHECK(rank.transport.slept_us == 200);
  CHECK(second.slept_us == 200);
}

// ---- With a real transport ----

TEST_CASE("wait: every algorithm's all-reduce is exact over the smallest staging, and over shuttles that go round") {
  constexpr std::size_t count = 60'000;
  for (const auto& [ranks, staging, in_place] :
       {std::tuple{3, std::size_t{4096}, false}, {3, default_staging, false}, {4, default_staging, true}}) {
    const NodeLayout layout(ranks, max_channels, staging);
    const std::size_t chunk = std::min(layout.slot_bytes() / 4, std::size_t{5000});
    for (const Algorithm& algorithm : algorithms()) {
      const Problem problem{.collective = Collective::all_reduce, .ranks = ranks, .count = count, .in_place = in_place};
      if (!serves(algorithm, problem)) continue;
      INFO(algorithm.name, " on ", ranks, " ranks");
      auto segment = Segment::create(layout.total());
      REQUIRE(segment.ok());
      std::vector<Status> statuses(static_cast<std::size_t>(ranks));
      std::vector<char> exact(static_cast<std::size_t>(ranks), 1);
      std::vector<std::thread> threads;
      for (int me = 0; me < ranks; ++me) {
        threads.emplace_back([&, me] {
          std::vector<NodePeer> peers;
          for (int rank = 0; rank < ranks; ++rank) peers.push_back({rank, getpid()});
          SharedMemoryTransport transport(*segment, layout, peers, me, ranks, {});
          FakeRank rank(me, ranks);
          rank.wiring.transports = {&transport, nullptr};
          rank.wiring.oversubscribed = true;
          Parameters parameters;
          parameters.chunk = chunk;
          Schedule schedule(problem, parameters, me);
          algorithm.write(schedule);
          const Plan plan = bind(schedule, rank.wiring.routes, DataType::float32, Operation::sum);
          std::vector<std::byte> scratch(plan.scratch_bytes);
          for (std::uint32_t call = 1; call <= 3; ++call) {
            const auto element = [&](std::size_t i, int of) {
              return static_cast<float>((i * 7 + static_cast<std::size_t>(of) * 13 + call) % 1000);
            };
            Floats input(count);
            for (std::size_t i = 0; i < count; ++i) input[i] = element(i, me);
            Floats apart(in_place ? 0 : count);
            Floats& output = in_place ? input : apart;
            Memory memory = memory_of(input, output);
            memory.scratch = scratch.data();
            Execution execution(rank.wiring);
            execution.add(plan, all_reduce(call), memory);
            Status status = run(execution);
            if (!status.ok()) statuses[static_cast<std::size_t>(me)] = std::move(status);
            for (std::size_t i = 0; i < count; ++i) {
              float sum = 0;
              for (int of = 0; of < ranks; ++of) sum += element(i, of);
              if (output[i] != sum) exact[static_cast<std::size_t>(me)] = 0;
            }
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (const char one : exact) CHECK(one == 1);
      for (const Status& status : statuses) CHECK_MESSAGE(status.ok(), status.message());
    }
  }
}

}  // namespace paceline
