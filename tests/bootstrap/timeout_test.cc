// A wait that is in vain: whom the ranks accuse, and whom they do not.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "bootstrap/ranks.h"

using namespace paceline;
using namespace paceline::testing;

TEST_CASE("a stopped rank is named by all within a second of the timeout, whoever was waited for") {
  for (const int victim : {2, 0}) {
    const Gate gate;
    Children children(4, [&](Session& session, Membership& membership, const Child::Say& say) {
      if (session.rank() == victim) ::pause();
      gate.await();
      const Status status = wait_in_vain(membership, session.rank() == 3 ? 1 : victim);
      say(status.message());
      say(fmt::format("{} {} {} {}", static_cast<int>(status.code()), status.detail().rank, status.detail().collective,
                      status.detail().sequence));
      ::pause();
    });
    children[victim].kill(SIGSTOP);
    REQUIRE(children[victim].await_stop());
    const auto begin = Clock::now();
    gate.open(3);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string line = children[rank].line();
      CHECK_MESSAGE(line.starts_with(fmt::format("rank {} (", victim)), line);
      CHECK(line.find(fmt::format("pid {}) does not answer: its process is stopped or its node unreachable; rank ",
                                  children[victim].pid())) != std::string::npos);
      CHECK(children[rank].line() == fmt::format("{} {} all-reduce 812", static_cast<int>(Code::timeout), victim));
    }
    CHECK(Clock::now() - begin < 3s);
  }
}

// What rank 1 says of rank 2, which is stopped, when rank 0 parts in peace while it inquires.
static Status of_a_stopped_rank_when_rank_0_parts() {
  const int port = free_port();
  Child stopped([&](const Child::Say& say) {
    const auto session = join(rendezvous(2, 3, port));
    if (!session.ok()) return say(session.status().message());
    const auto membership = (*session)->enter(1, first(3), 2);
    say("ready");
    ::raise(SIGSTOP);
  });
  auto joined = in_threads(2, [&](int rank) { return join(rendezvous(rank, 3, port)); });
  REQUIRE(stopped.line() == "ready");
  REQUIRE(stopped.await_stop());
  std::vector<std::shared_ptr<Session>> sessions;
  for (auto& result : joined) sessions.push_back(std::move(*result));
  joined.clear();
  auto memberships = enter_all(sessions);
  Status status;
  std::thread waiting([&] { status = wait_in_vain(*memberships[1], 2); });
  std::this_thread::sleep_for(100ms);  // the inquiry is under way by then
  memberships[0]->leave();
  memberships[0].reset();
  sessions[0].reset();
  waiting.join();
  return status;
}

TEST_CASE("rank 0 that parts in peace while it inquires is not accused") {
  std::string message;
  const auto parted = [&] {
    return message.find(") has not answered, and rank 0 of the job is no longer there to ask others") != message.npos;
  };
  for (int turn = 0; turn < 5 && !parted(); ++turn) {  // the inquiry may be over before: it takes 0.4 s
    const Status status = of_a_stopped_rank_when_rank_0_parts();
    CHECK(status.code() == Code::timeout);
    CHECK(status.detail().rank == 2);
    message = status.message();
  }
  CHECK_MESSAGE(parted(), message);
}

TEST_CASE("the rank that has not entered the call is named, although it answers") {
  const auto sessions = join_all(3);
  const auto memberships = enter_all(sessions);
  memberships[2]->activity.sequence = 811;
  for (const int rank : {0, 1}) {  // both are inside before either loses patience
    memberships[static_cast<std::size_t>(rank)]->activity.sequence = 812;
    memberships[static_cast<std::size_t>(rank)]->activity.inside = Inside::collective;
  }
  const auto results = in_threads(
      2, [&](int rank) { return wait_in_vain(*memberships[static_cast<std::size_t>(rank)], rank == 0 ? 2 : 0); });
  for (const Status& status : results) {
    CHECK(status.code() == Code::timeout);
    CHECK(status.detail().rank == 2);
    CHECK(status.message().find(") has not entered all-reduce #812; it is outside of any call; rank ") !=
          std::string::npos);
  }
  REQUIRE(ends_within(*memberships[2], 5s));
  CHECK(memberships[2]->failure().message() == results[0].message());
}

TEST_CASE("a rank inside a send or receive is said to be there, and not in the collective before it") {
  const auto sessions = join_all(2);
  const auto memberships = enter_all(sessions);
  memberships[1]->activity.sequence = 811;
  memberships[1]->activity.inside = Inside::messages;
  const Status status = wait_in_vain(*memberships[0], 1);
  CHECK(status.detail().rank == 1);
  CHECK(status.message().find(") has not entered all-reduce #812; it is inside a send or receive, after #811; rank 0 "
                              "waited") != std::string::npos);
}

TEST_CASE("a rank inside a call of another communicator is said to be there, and not outside of any call") {
  const auto sessions = join_all(2);
  const auto memberships = enter_all(sessions);
  const auto another = sessions[1]->enter(2, {0, 1}, 1);
  another->activity.inside = Inside::collective;
  memberships[1]->activity.sequence = 811;
  const Status status = wait_in_vain(*memberships[0], 1);
  CHECK(status.detail().rank == 1);
  CHECK(status.message().find(") has not entered all-reduce #812; it is inside a call of another communicator; rank 0 "
                              "waited") != std::string::npos);
}

TEST_CASE("a rank that left is named when another waits for it") {
  const auto sessions = join_all(2);
  const auto memberships = enter_all(sessions);
  memberships[0]->activity.sequence = 811;
  memberships[0]->leave();
  const Status status = wait_in_vain(*memberships[1], 0);
  CHECK_MESSAGE(status.message().find(") will not enter all-reduce #812: it left after #811") != std::string::npos,
                status.message());
}

TEST_CASE("a wait for nobody ends the communicator and accuses no rank") {
  for (const bool supervised : {true, false}) {
    auto sessions = join_all(3);
    const auto one = sessions[1]->enter(5, {1, 2}, 0), two = sessions[2]->enter(5, {1, 2}, 1);
    if (!supervised) {
      sessions[0].reset();
      CHECK_FALSE(sessions[1]->exchange(bytes("x"), in(20s)).ok());  // it knows that rank 0 is gone
    }
    const Status status = wait_in_vain(*one, supervised ? -1 : 2);
    CHECK(status.code() == Code::timeout);
    CHECK(status.detail().rank == -1);
    CHECK_MESSAGE(status.message().starts_with("rank 0 ("), status.message());
    CHECK_MESSAGE(status.message().find(") waited 5.0 s in all-reduce #812 ") != std::string::npos, status.message());
    if (!supervised) continue;
    REQUIRE(ends_within(*two, 5s));
    CHECK(two->failure().message() == status.message());
  }
}
