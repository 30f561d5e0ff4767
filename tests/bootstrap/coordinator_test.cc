#include "bootstrap/coordinator.h"

#include <doctest/doctest.h>

#include <utility>

using namespace paceline;

namespace {

using Ranks = Coordinator::Ranks;

struct Job {
  std::vector<std::pair<Ranks, ControlMessage>> sent;
  Coordinator coordinator{
      std::vector<Member>(4, Member{"node-a", "", "", 1}),
      [this](const Ranks& ranks, const ControlMessage& message) { sent.emplace_back(ranks, message); }};
  Clock::time_point now = Clock::now();

  void receive(std::uint32_t from, const ControlMessage& message) { coordinator.receive(from, message, now); }
  // The last message sent, and to whom.
  template <class Message>
  Message last(const Ranks& to) {
    REQUIRE_FALSE(sent.empty());
    CHECK(sent.back().first == to);
    return std::get<Message>(sent.back().second);
  }
};

// Rank 3 waits for rank 1 in communicator 77 of ranks 1, 2 and 3.
Suspicion suspicion() { return {77, {1, 2, 3}, 2, 0, Call{812, 1, 1}, 5}; }

Status::Detail reason(const char* message) {
  Status::Detail detail;
  detail.code = Code::aborted;
  detail.message = message;
  return detail;
}

}  // namespace

TEST_CASE("a death is told to all who are there, once") {
  Job job;
  job.coordinator.lost(2, "its control connection closed");
  const Death death = job.last<Death>({0, 1, 3});
  CHECK(death.rank == 2);
  CHECK(death.how == "its control connection closed");
  job.coordinator.lost(2, "again");
  CHECK(job.sent.size() == 1);
}

TEST_CASE("an end after a farewell is no death") {
  Job job;
  job.receive(2, Farewell{2});
  CHECK(job.last<Farewell>({0, 1, 3}).rank == 2);
  job.coordinator.lost(2, "its control connection closed");
  CHECK(job.sent.size() == 1);
}

TEST_CASE("the first reason stands") {
  Job job;
  job.receive(2, Verdict{77, reason("first")});
  CHECK(job.last<Verdict>({0, 1, 2, 3}).reason.message == "first");
  job.receive(1, Verdict{77, reason("second")});
  CHECK(job.sent.size() == 1);
  job.receive(3, suspicion());
  CHECK(job.last<Verdict>({3}).reason.message == "first");
}

TEST_CASE("an inquiry asks the communicator's ranks, and names the silent one when its time is up") {
  Job job;
  job.receive(3, suspicion());
  const Ping ping = job.last<Ping>({1, 2, 3});
  CHECK(ping.communicator == 77);
  job.receive(1, suspicion());  // another that waits: the same inquiry
  CHECK(job.sent.size() == 1);
  job.receive(1, Pong{ping.inquiry, Pong::State::inside, 812});
  job.receive(3, Pong{ping.inquiry, Pong::State::inside, 812});
  CHECK(job.coordinator.next_tick() == job.now + inquiry_time);
  job.coordinator.tick(job.now + inquiry_time - std::chrono::milliseconds(1));
  CHECK(job.sent.size() == 1);
  job.coordinator.tick(job.now + inquiry_time);
  const Verdict verdict = job.last<Verdict>({0, 1, 2, 3});
  CHECK(verdict.communicator == 77);
  CHECK(verdict.reason.rank == 1);  // the communicator's: session rank 2
  CHECK_FALSE(job.coordinator.next_tick().has_value());
}

TEST_CASE("an inquiry ends as soon as all have answered") {
  Job job;
  job.receive(3, suspicion());
  const Ping ping = job.last<Ping>({1, 2, 3});
  for (const std::uint32_t rank : {1, 2, 3})
    job.receive(rank, Pong{ping.inquiry, Pong::State::inside, rank == 2 ? 811U : 812U});
  CHECK(job.last<Verdict>({0, 1, 2, 3}).reason.rank == 1);
}

TEST_CASE("a rank that has left the communicator is judged by how far it came") {
  for (const bool session_ended : {true, false}) {
    Job job;
    job.receive(1, Left{77, 0, 812, 3});
    job.receive(1, Left{78, 0, 5, 3});
    if (session_ended) job.receive(1, Farewell{1});
    job.receive(3, suspicion());  // for rank 1, that has ended the call
    const Ping ping = session_ended ? job.last<Ping>({2, 3}) : job.last<Ping>({1, 2, 3});
    if (!session_ended) job.receive(1, Pong{ping.inquiry, Pong::State::absent, 0});  // it remembers nothing of it
    job.receive(2, Pong{ping.inquiry, Pong::State::outside, 811});
    job.receive(3, Pong{ping.inquiry, Pong::State::inside, 812});
    const Verdict verdict = job.last<Verdict>(session_ended ? Ranks{0, 2, 3} : Ranks{0, 1, 2, 3});
    CHECK(verdict.reason.rank == 1);  // the communicator's: session rank 2
    CHECK(verdict.reason.message.find("has not entered") != std::string::npos);
  }
}

TEST_CASE("a rank that has left the communicator is not the silent one") {
  for (const bool before : {true, false}) {
    Job job;
    if (before) job.receive(2, Left{77, 1, 812, 3});
    job.receive(3, suspicion());  // for rank 1
    const Ping ping = job.last<Ping>({1, 2, 3});
    if (!before) job.receive(2, Left{77, 1, 812, 3});
    job.receive(1, Pong{ping.inquiry, Pong::State::outside, 811});
    job.receive(3, Pong{ping.inquiry, Pong::State::inside, 812});
    job.coordinator.tick(job.now + inquiry_time);
    const Verdict verdict = job.last<Verdict>({0, 1, 2, 3});
    CHECK(verdict.reason.rank == 0);  // the communicator's: session rank 1
    CHECK(verdict.reason.message.find("has not entered") != std::string::npos);
  }
}

TEST_CASE("of a communicator that all have left nothing is kept") {
  Job job;
  for (const std::uint32_t rank : {1, 2, 3}) job.receive(rank, Left{77, rank - 1, 811, 3});
  CHECK(job.last<Left>({0, 1, 2}).size == 3);
  job.receive(3, suspicion());
  const Ping ping = job.last<Ping>({1, 2, 3});
  for (const std::uint32_t rank : {1, 2, 3}) job.receive(rank, Pong{ping.inquiry, Pong::State::absent, 0});
  CHECK(job.last<Verdict>({0, 1, 2, 3}).reason.message.find("has no such communicator") != std::string::npos);
}

TEST_CASE("a death ends the inquiry: it is the answer") {
  Job job;
  job.receive(3, suspicion());
  job.coordinator.lost(2, "its control connection closed");
  job.last<Death>({0, 1, 3});
  CHECK_FALSE(job.coordinator.next_tick().has_value());
}

TEST_CASE("but the death of a rank that had left the communicator ends nothing") {
  for (const bool says_farewell : {false, true}) {
    Job job;
    if (!says_farewell) job.receive(2, Left{77, 1, 811, 3});
    job.receive(3, suspicion());
    const Ping ping = job.last<Ping>({1, 2, 3});
    job.receive(1, Pong{ping.inquiry, Pong::State::inside, 812});
    if (says_farewell) job.receive(2, Left{77, 1, 811, 3});  // they crossed
    if (says_farewell)
      job.receive(2, Farewell{2});
    else
      job.coordinator.lost(2, "its control connection closed");
    CHECK(job.coordinator.next_tick().has_value());
    job.receive(3, Pong{ping.inquiry, Pong::State::inside, 812});
    const Verdict verdict = job.last<Verdict>({0, 1, 3});
    CHECK(verdict.reason.rank == 1);  // the communicator's: session rank 2
    CHECK(verdict.reason.message.find("it left after #811") != std::string::npos);
  }

  // It may be the last that was waited for.
  Job job;
  job.receive(2, Left{77, 1, 811, 3});
  job.receive(3, suspicion());
  const Ping ping = job.last<Ping>({1, 2, 3});
  for (const std::uint32_t rank : {1, 3}) job.receive(rank, Pong{ping.inquiry, Pong::State::inside, 812});
  job.coordinator.lost(2, "its control connection closed");
  CHECK(job.last<Verdict>({0, 1, 3}).reason.rank == 1);
}

TEST_CASE("a verdict ends the inquiry") {
  Job job;
  job.receive(3, suspicion());
  job.receive(1, Verdict{77, reason("first")});
  CHECK_FALSE(job.coordinator.next_tick().has_value());
}

TEST_CASE("ranks that do not exist are not asked") {
  Job job;
  Suspicion wrong = suspicion();
  wrong.ranks[0] = 4;
  job.receive(3, wrong);
  wrong = suspicion();
  wrong.waiting_for = 3;
  job.receive(3, wrong);
  CHECK(job.sent.empty());
}

TEST_CASE("contributions go to all others, and only under the sender's own name") {
  Job job;
  job.receive(2, Contribution{0, 2, Bytes(3)});
  CHECK(job.last<Contribution>({0, 1, 3}).rank == 2);
  job.receive(2, Contribution{0, 1, Bytes(3)});
  CHECK(job.sent.size() == 1);
}
