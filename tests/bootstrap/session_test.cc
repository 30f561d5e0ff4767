#include "bootstrap/session.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <new>

#include "bootstrap/ranks.h"
#include "bootstrap/threads.h"
#include "comm/scarce_memory.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

std::string until_failed(const Membership& membership) {
  return ends_within(membership, 10s) ? membership.failure().message() : "still there";
}

int open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("an exchange gives everyone everything, of any length") {
  const auto sessions = join_all(4);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, std::size_t{1} << 20}) {
    const auto results = in_threads(4, [&](int rank) {
      const Bytes mine(size, static_cast<std::byte>(rank + 1));
      return sessions[static_cast<std::size_t>(rank)]->exchange(mine, in(10s));
    });
    for (const auto& result : results) {
      REQUIRE(result.ok());
      REQUIRE(result->size() == 4);
      for (int rank = 0; rank < 4; ++rank)
        CHECK((*result)[static_cast<std::size_t>(rank)] == Bytes(size, static_cast<std::byte>(rank + 1)));
    }
  }
}

TEST_CASE("exchanges that overlap stay apart") {
  const auto sessions = join_all(3);
  in_threads(3, [&](int rank) {
    for (int round = 0; round < 50; ++round) {
      const auto result =
          sessions[static_cast<std::size_t>(rank)]->exchange(bytes(fmt::format("{} {}", rank, round)), in(10s));
      if (!result.ok()) return false;
      for (int other = 0; other < 3; ++other)
        CHECK((*result)[static_cast<std::size_t>(other)] == bytes(fmt::format("{} {}", other, round)));
    }
    return true;
  });
}

TEST_CASE("the time for exchanges does not run out while the whole job is stopped") {
  Gate gate;
  Children children(2, [&](Session& session, Membership&, const Child::Say& say) {
    const auto deadline = in(4s);
    if (session.rank() == 0) gate.await();
    for (int i = 0; i < 2; ++i) {
      const Status status = session.exchange(bytes("x"), session.rank() == 0 ? in(20s) : deadline).status();
      say(status.ok() ? "well" : status.message());
    }
    ::pause();
  });
  std::this_thread::sleep_for(500ms);  // rank 1 waits by then
  for (const int signal : {SIGSTOP, SIGCONT}) {
    for (const int rank : {0, 1}) children[rank].kill(signal);
    std::this_thread::sleep_for(signal == SIGSTOP ? 4500ms : 500ms);
  }
  gate.open(1);
  for (const int rank : {0, 1})
    for (int i = 0; i < 2; ++i) CHECK(children[rank].line() == "well");
}

TEST_CASE("an exchange ends at its deadline and names who did not come") {
  const auto sessions = join_all(3);
  const auto results = in_threads(
      2, [&](int rank) { return sessions[static_cast<std::size_t>(rank)]->exchange(bytes("x"), in(1s)).status(); });
  for (const Status& status : results) {
    CHECK(status.code() == Code::timeout);
    CHECK(status.detail().rank == 2);
    CHECK(status.message().starts_with("rank 2 did not come to an exchange within "));
  }
}

TEST_CASE("who ends its session after an exchange that failed is not accused of that") {
  auto sessions = join_all(3);
  const auto results = in_threads(2, [&](int rank) {
    auto& session = sessions[static_cast<std::size_t>(rank)];
    Status status = session->exchange(bytes("x"), in(rank == 0 ? 2s : 20s)).status();
    session.reset();
    return status;
  });
  // Also to the one that comes too late.
  for (const Status& status : {results[0], results[1], sessions[2]->exchange(bytes("x"), in(20s)).status()}) {
    CHECK(status.code() == Code::timeout);
    CHECK(status.detail().rank == 2);
    CHECK(status.message().starts_with("rank 2 did not come to an exchange within "));
    CHECK(status.message().size() <= std::string_view("rank 2 did not come to an exchange within 0.2 s").size());
  }
}

TEST_CASE("an exchange without a rank that has ended its session fails at once") {
  auto sessions = join_all(3);
  sessions[2].reset();
  const auto results = in_threads(
      2, [&](int rank) { return sessions[static_cast<std::size_t>(rank)]->exchange(bytes("x"), in(20s)).status(); });
  for (const Status& status : results) {
    CHECK(status.code() == Code::remote);
    CHECK(status.message().find("ended its session, during an exchange") != std::string::npos);
  }
}

TEST_CASE("more than a mebibyte cannot be exchanged") {
  CHECK(alone()->exchange(Bytes((1 << 20) + 1), in(1s)).status().code() == Code::invalid_argument);
}

TEST_CASE("a session of one rank needs nobody") {
  const auto session = alone();
  CHECK((*session->exchange(bytes("x"), in(1s))) == std::vector<Bytes>{bytes("x")});
  const auto membership = session->enter(1, {0}, 0);
  CHECK_FALSE(membership->failed());
  CHECK(membership->report(Status(Code::aborted, "enough")).message() == "enough");
  CHECK(membership->failed());
}

TEST_CASE("a report ends the communicator on every rank, for the first reason, and no other communicator") {
  const auto sessions = join_all(4);
  const auto memberships = enter_all(sessions), others = enter_all(sessions, 2);
  Status::Detail reason{Code::mismatch, "rank 2 calls something else", 2, "node-b", 1, "broadcast", 7, 0};
  CHECK(memberships[3]->report(Status(reason)).message() == reason.message);
  for (const auto& membership : memberships) {
    REQUIRE(ends_within(*membership, 5s));
    const Status failure = membership->failure();
    CHECK(failure.code() == Code::mismatch);
    CHECK(failure.message() == reason.message);
    CHECK(failure.detail().rank == 2);
    CHECK(failure.detail().host == "node-b");
    CHECK(failure.detail().peer == 1);
    CHECK(failure.detail().collective == "broadcast");
    CHECK(failure.detail().sequence == 7);
  }
  CHECK(memberships[0]->report(Status(Code::aborted, "later")).message() == reason.message);
  for (const auto& membership : others) CHECK_FALSE(membership->failed());
}

TEST_CASE("a communicator that has ended before this rank made it has ended here too") {
  const auto sessions = join_all(2);
  const auto early = sessions[0]->enter(9, {0, 1}, 0);
  const auto witness = enter_all(sessions);
  CHECK(early->report(Status(Code::aborted, "enough")).code() == Code::aborted);
  // Messages stay in order: after this one the other has come.
  CHECK(witness[0]->report(Status(Code::aborted, "witness")).code() == Code::aborted);
  REQUIRE(ends_within(*witness[1], 5s));
  const auto late = sessions[1]->enter(9, {0, 1}, 1);
  REQUIRE(late->failed());
  CHECK(late->failure().message() == "enough");
}

TEST_CASE("a killed rank is named on all others within moments, by its number in each communicator") {
  for (const int victim : {2, 0}) {
    Children children(4, [&](Session& session, Membership& membership, const Child::Say& say) {
      const int rank = session.rank();
      const auto with_it = session.enter(2, {3, victim}, rank == 3 ? 0 : 1);
      const auto without_it = session.enter(3, {1, 3}, 0);
      say("go");
      if (rank == victim) ::pause();
      say(until_failed(membership));
      if (rank == 3) say(until_failed(*with_it));
      if (rank == 3) say(without_it->failed() ? "failed" : "there");
      ::pause();
    });
    for (int rank = 0; rank < 4; ++rank) REQUIRE(children[rank].line() == "go");
    const int pid = children[victim].pid();
    const auto begin = Clock::now();
    children[victim].kill(SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string line = children[rank].line();
      CHECK(line.starts_with(fmt::format("rank {} (", victim)));
      CHECK(line.ends_with(fmt::format(", pid {}) died: its control connection closed", pid)));
    }
    CHECK(Clock::now() - begin < 2s);
    CHECK(children[3].line().starts_with("rank 1 ("));
    CHECK(children[3].line() == "there");
  }
}

TEST_CASE("of a death a rank says in which collective it has met it") {
  Children children(3, [&](Session& session, Membership& membership, const Child::Say& say) {
    if (session.rank() == 0) {
      membership.activity.sequence = 7;
      membership.activity.what = make_call(Collective::all_reduce, DataType::float32, Operation::sum, 0, 1, 7).what;
      membership.activity.inside = Inside::collective;
    }
    say("go");
    if (session.rank() == 1) ::pause();
    say(until_failed(membership));
    say(fmt::format("{} #{}", membership.failure().detail().collective, membership.failure().detail().sequence));
    ::pause();
  });
  for (int rank = 0; rank < 3; ++rank) REQUIRE(children[rank].line() == "go");
  children[1].kill(SIGKILL);
  CHECK(children[0].line().ends_with(") died: its control connection closed; this rank was in all-reduce #7"));
  CHECK(children[0].line() == "all-reduce #7");
  CHECK(children[2].line().ends_with(") died: its control connection closed"));
  CHECK(children[2].line() == " #0");
}

TEST_CASE("a rank that ends its process as soon as the communicator has ended is not the reason") {
  for (const int first : {2, 0}) {
    for (int turn = 0; turn < 10; ++turn) {
      Children children(3, [&](Session& session, Membership& membership, const Child::Say& say) {
        say("go");
        if (session.rank() == first) {
          // By this thread, or by another one of a program whose first thread ends it.
          const auto report = [&] { (void)membership.report(Status(Code::aborted, "enough")); };
          if (turn % 2 == 0) report();
          if (turn % 2 == 1) std::thread(report).detach();
          while (!membership.failed()) std::this_thread::yield();
          ::_exit(0);
        }
        say(until_failed(membership));
        if (session.rank() == 0) ::_exit(0);  // it passes the reason on
        ::pause();
      });
      for (int rank = 0; rank < 3; ++rank) REQUIRE(children[rank].line() == "go");
      for (int rank = 0; rank < 3; ++rank)
        if (rank != first) CHECK(children[rank].line() == "enough");
    }
  }
}

TEST_CASE("a broken connection waits for news of a death, which explains it") {
  const Gate gate;
  Children children(3, [&](Session& session, Membership& membership, const Child::Say& say) {
    if (session.rank() == 2) ::pause();
    gate.await();
    std::this_thread::sleep_for(session.rank() == 1 ? 50ms : 0ms);
    say(membership.report(Status(Code::remote, "connection lost")).message());
    ::pause();
  });
  children[2].kill(SIGKILL);
  gate.open(2);
  for (const int rank : {0, 1}) CHECK(children[rank].line().find(" died: ") != std::string::npos);
}

TEST_CASE("a broken connection that nothing explains is the reason itself") {
  const auto sessions = join_all(2);
  const auto memberships = enter_all(sessions);
  CHECK(memberships[1]->report(Status(Code::remote, "connection lost")).message() == "connection lost");
  REQUIRE(ends_within(*memberships[0], 5s));
  CHECK(memberships[0]->failure().message() == "connection lost");
}

TEST_CASE("what a rank says of itself waits for no news of a death") {
  const auto sessions = join_all(2);
  std::vector<Memberships> all;
  for (std::uint64_t id = 1; id <= 20; ++id) all.push_back(enter_all(sessions, id));
  Status::Detail reason;
  reason.code = Code::remote;
  reason.rank = 1;
  reason.message = "rank 1 broke off its group of calls";
  const auto begin = Clock::now();
  for (const Memberships& memberships : all) CHECK(memberships[1]->report(Status(reason)).message() == reason.message);
  CHECK(Clock::now() - begin < 5s);  // news is waited for 0.3 s
  for (const Memberships& memberships : all) CHECK(ends_within(*memberships[0], 5s));
}

TEST_CASE("a communicator that this rank never enters leaves nothing behind when others leave it") {
  const auto sessions = join_all(2);
  const auto witness = enter_all(sessions, 2);
  sessions[0]->enter(9, {0, 1}, 0)->leave();
  witness[0]->leave();
  // Messages stay in order: after this one the other has come.
  for (const auto deadline = in(5s); !witness[1]->has_left(0, nullptr) && Clock::now() < deadline;)
    std::this_thread::sleep_for(1ms);
  REQUIRE(witness[1]->has_left(0, nullptr));
  CHECK_FALSE(sessions[1]->enter(9, {0, 1}, 1)->has_left(0, nullptr));
}

TEST_CASE("who leaves in peace, and then ends, does no harm; the others learn how far it came") {
  auto sessions = join_all(3);
  auto memberships = enter_all(sessions);
  memberships[1]->activity.sequence = 5;
  memberships[1]->leave();
  memberships[1].reset();
  sessions[1].reset();
  std::uint32_t sequence = 0;
  for (const int rank : {0, 2}) {
    const Membership& membership = *memberships[static_cast<std::size_t>(rank)];
    for (const auto deadline = in(5s); !membership.has_left(1, &sequence) && Clock::now() < deadline;)
      std::this_thread::sleep_for(1ms);
    CHECK(membership.has_left(1, &sequence));
    CHECK(sequence == 5);
    CHECK_FALSE(membership.has_left(0, &sequence));
    CHECK_FALSE(membership.failed());
  }
}

TEST_CASE("who asked for it is told of each rank that leaves, also of those that had left before") {
  const auto sessions = join_all(3);
  auto memberships = enter_all(sessions);
  const auto has_left = [&](int rank) {
    const auto deadline = in(5s);
    while (!memberships[0]->has_left(rank, nullptr) && Clock::now() < deadline) std::this_thread::sleep_for(1ms);
    return memberships[0]->has_left(rank, nullptr);
  };
  memberships[1]->leave();
  REQUIRE(has_left(1));
  std::vector<int> told;
  memberships[0]->when_left([&](int rank) { told.push_back(rank); });
  CHECK(told == std::vector<int>{1});
  memberships[2]->leave();
  REQUIRE(has_left(2));
  memberships[0]->when_left({});  // nothing is told any more: `told` is this thread's again
  CHECK(told == std::vector<int>{1, 2});
}

TEST_CASE("a lack of memory on the thread of its connections ends a rank's communicators by name, and the others'") {
  for (const int scarce : {0, 1}) {
    auto sessions = join_all(3);
    auto memberships = enter_all(sessions);
    const auto place = static_cast<std::size_t>(scarce);
    memberships[place]->when_left([](int) { throw std::bad_alloc(); });
    memberships[2]->leave();
    REQUIRE(ends_within(*memberships[place], 5s));
    const Status failure = memberships[place]->failure();
    CHECK(failure.code() == Code::system);
    CHECK(failure.detail().rank == scarce);
    CHECK(failure.message().ends_with("): the thread of its control connections: Cannot allocate memory"));
    const Membership& other = *memberships[1 - place];
    REQUIRE(ends_within(other, 5s));
    CHECK(other.failure().detail().rank == scarce);
    // What begins later ends, too.
    CHECK(sessions[place]->exchange(bytes("x"), in(20s)).status().detail().rank == scarce);
    CHECK(sessions[place]->enter(7, first(3), scarce)->failed());
  }
}

TEST_CASE("a session and its communicators end where there is no memory for it") {
  bool lacks = true;
  for (long nth = 1; lacks; ++nth) {
    auto sessions = join_all(2);
    auto memberships = enter_all(sessions);
    fail_allocation(nth);
    memberships[1].reset();
    sessions[1].reset();
    lacks = !spare_allocation();
    if (lacks) continue;
    REQUIRE(ends_within(*memberships[0], 5s));
    CHECK(memberships[0]->failure().detail().rank == 1);
  }
}

TEST_CASE("a communicator dropped without leaving has ended for all") {
  const auto sessions = join_all(2);
  auto memberships = enter_all(sessions);
  memberships[1].reset();
  REQUIRE(ends_within(*memberships[0], 5s));
  CHECK(memberships[0]->failure().code() == Code::remote);
  CHECK(memberships[0]->failure().message().ends_with(") dropped the communicator without leaving it"));
}

TEST_CASE("communicators without rank 0 outlive its session") {
  auto sessions = join_all(3);
  const auto one = sessions[1]->enter(5, {1, 2}, 0), two = sessions[2]->enter(5, {1, 2}, 1);
  sessions[0].reset();
  const Status exchanged = sessions[1]->exchange(bytes("x"), in(20s)).status();
  CHECK(exchanged.message().find("ended its session, during an exchange") != std::string::npos);
  CHECK_FALSE(one->failed());
  const Status status = wait_in_vain(*one, 1);
  CHECK(status.code() == Code::timeout);
  CHECK(status.detail().rank == 1);
}

TEST_CASE("a forked child does not keep its dead parent's connections open") {
  Children children(2, [&](Session& session, Membership& membership, const Child::Say& say) {
    if (session.rank() == 1 && ::fork() == 0) {  // as a data loader's worker would live on
      ::alarm(20);
      ::pause();
    }
    say("go");
    if (session.rank() == 0) say(until_failed(membership));
    ::pause();
  });
  for (const int rank : {0, 1}) REQUIRE(children[rank].line() == "go");
  children[1].kill(SIGKILL);
  CHECK(children[0].line().ends_with("died: its control connection closed"));
}

TEST_CASE("a forked child may destroy its copy of the session; the parent's lives") {
  Children children(2, [&](Session& session, Membership& membership, const Child::Say& say) {
    std::shared_ptr<Session> copy;
    if (session.rank() == 1) {
      const auto more = session.enter(4, {0, 1}, 1);
      const ::pid_t child = ::fork();
      if (child == 0) {
        const_cast<std::unique_ptr<Membership>&>(more).reset();
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
      more->leave();
    }
    const auto exchanged = session.exchange(bytes("x"), in(10s));
    say(exchanged.ok() && !membership.failed() ? "well" : "harmed");
    ::pause();
  });
  for (const int rank : {0, 1}) CHECK(children[rank].line() == "well");
}

TEST_CASE("descriptors and threads return to where they were") {
  const int descriptors = open_descriptors(), threads = living_threads();
  for (int i = 0; i < 3; ++i) {
    auto sessions = join_all(4);
    auto memberships = enter_all(sessions);
    if (i == 1) CHECK(memberships[1]->report(Status(Code::aborted, "enough")).code() == Code::aborted);
    if (i == 2)
      for (const auto& membership : memberships) membership->leave();
  }
  CHECK(open_descriptors() == descriptors);
  CHECK(living_threads() == threads);
}

TEST_CASE("sessions end without waiting, in any order") {
  for (const bool rank_0_first : {true, false}) {
    auto shortest = Clock::duration::max();  // of three: whatever else runs only adds to a time
    for (int turn = 0; turn < 3 && shortest >= 1s; ++turn) {
      auto sessions = join_all(10);
      if (!rank_0_first) std::reverse(sessions.begin(), sessions.end());
      const auto begin = Clock::now();
      for (auto& session : sessions) session.reset();
      shortest = std::min(shortest, Clock::now() - begin);
    }
    CHECK(shortest < 1s);  // a session that waited would take 0.2 s
  }
}
