#include "engine/execution.h"

#include <doctest/doctest.h>

#include <array>
#include <vector>

#include "engine/fakes.h"

namespace paceline {
namespace {

using Floats = std::vector<float>;
using Turn = Execution::Turn;

}  // namespace

TEST_CASE("execution: without steps there is nothing to do") {
  FakeRank rank;
  Execution execution(rank.wiring);
  CHECK(execution.advance() == Turn::done);
  PlanWriter empty;
  CHECK(execution.add(empty.plan, all_reduce(1), {}) == -1);
  CHECK(execution.advance() == Turn::done);
}

TEST_CASE("execution: a send gives the transport the call, the peers and the data as it lies") {
  FakeRank rank;
  PlanWriter writer;
  writer.send({1, 2}, 3, 2).stays = true;
  const Floats input(8);
  Floats output;
  Execution execution(rank.wiring);
  CHECK(execution.add(writer.plan, all_reduce(7), memory_of(input, output)) == 0);
  CHECK(execution.advance() == Turn::done);
  REQUIRE(rank.transport.sends.size() == 1);
  const FakeTransport::Sent& sent = rank.transport.sends[0];
  CHECK(sent.channel == 0);
  CHECK(sent.to == std::vector{1, 2});
  CHECK(sent.call == all_reduce(7));
  CHECK(sent.data == bytes_of(input).data() + 12);
  CHECK(sent.bytes == 8);
  CHECK(sent.stays);
  CHECK(rank.wiring.posted[0][0] == 1);
}

TEST_CASE("execution: a short message is given and taken at once") {
  FakeRank rank;
  rank.transport.at_once = 8;
  const Floats input{1, 2, 3};
  Floats output(3, 9);
  Execution execution(rank.wiring);
  PlanWriter to_one;
  to_one.send({1}, 1, 2);
  CHECK(execution.take_at_once(to_one.plan, all_reduce(7), memory_of(input, output)));
  PlanWriter to_all;
  PlanStep& result = to_all.send({1, 2}, 0, 1);
  result.to_all = true;
  result.source_buffer = Buffer::output;
  CHECK(execution.take_at_once(to_all.plan, all_reduce(8), memory_of(input, output)));
  REQUIRE(rank.transport.sends.size() == 2);
  CHECK(rank.transport.sends[0].data == bytes_of(input).data() + 4);
  CHECK(rank.transport.sends[0].call == all_reduce(7));
  CHECK(rank.transport.sends[1].data == bytes_of(output).data());
  CHECK(rank.transport.sends[1].to == std::vector{1, 2});
  CHECK(rank.transport.sends[1].to_all);
  CHECK(rank.wiring.posted[0][0] == 2);

  PlanWriter receives;
  receives.recv(2, 1, 2);
  rank.transport.deliver(0, 2, bytes_of({5, 6}));
  CHECK(execution.take_at_once(receives.plan, all_reduce(9), memory_of(input, output)));
  CHECK(output == Floats{9, 5, 6});
  CHECK(rank.transport.taken(0, 2));
  CHECK(execution.empty());
  CHECK(execution.advance() == Turn::done);
}

TEST_CASE("execution: what cannot be done at once is not begun") {
  FakeRank rank;
  rank.transport.at_once = 8;
  const Floats input(3);
  Floats output(3, 9);
  Execution execution(rank.wiring);
  const auto at_once = [&](const PlanWriter& writer) {
    return execution.take_at_once(writer.plan, all_reduce(7), memory_of(input, output));
  };
  rank.transport.deliver(0, 1, bytes_of({5, 6, 7}));
  PlanWriter empty;
  PlanWriter longer;
  longer.recv(1, 0, 3);
  PlanWriter two_steps;
  two_steps.recv(1, 0, 1);
  two_steps.send({1}, 0, 1);
  PlanWriter to_several;
  to_several.send({1, 2}, 0, 1);
  PlanWriter folds;
  folds.fold({1}, 0, 0, 1);
  PlanWriter copies;
  copies.copy(0, 0, 1);
  PlanWriter not_there;
  not_there.recv(2, 0, 2);
  for (const PlanWriter* writer : {&empty, &longer, &two_steps, &to_several, &folds, &copies, &not_there})
    CHECK_FALSE(at_once(*writer));
  CHECK(rank.transport.sends.empty());
  CHECK_FALSE(rank.transport.taken(0, 1));

  // It comes while the receive waits in its lane.
  execution.add(not_there.plan, all_reduce(7), memory_of(input, output));
  CHECK(execution.advance() == Turn::stuck);
  rank.transport.deliver(0, 2, bytes_of({5, 6}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{5, 6, 9});

  PlanWriter sends;
  sends.send({1}, 0, 1);
  rank.transport.room = 0;
  CHECK_FALSE(at_once(sends));
  CHECK(rank.wiring.posted[0][0] == 0);
  rank.transport.broken = true;
  CHECK_FALSE(at_once(not_there));
  execution.clear();
  execution.add(not_there.plan, all_reduce(7), memory_of(input, output));
  CHECK(execution.advance() == Turn::failed);
}

TEST_CASE("execution: messages to all ranks are sent, awaited and released as such") {
  FakeRank rank;
  PlanWriter writer;
  writer.send({1, 2}, 0, 1).to_all = true;
  writer.recv(1, 0, 1).to_all = true;
  writer.fold({1, 2}, 0, 1, 1).to_all = true;
  const Floats input{7};
  Floats output(2);
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(7), memory_of(input, output));
  CHECK(execution.advance() != Turn::done);
  REQUIRE(rank.transport.sends.size() == 1);
  CHECK(rank.transport.sends[0].to_all);
  rank.transport.deliver(0, 1, bytes_of({100}));  // another message, not to all
  CHECK(execution.advance() == Turn::stuck);
  rank.transport.deliver(0, 1, bytes_of({5}), true);
  rank.transport.deliver(0, 1, bytes_of({20}), true);
  rank.transport.deliver(0, 2, bytes_of({30}), true);
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{5, 57});
  CHECK(rank.transport.taken(0, 1, true));
  CHECK(rank.transport.taken(0, 2, true));
  CHECK_FALSE(rank.transport.taken(0, 1));
}

TEST_CASE("execution: a received message is copied to its target and released") {
  FakeRank rank;
  PlanWriter writer;
  writer.recv(2, 1, 2);
  const Floats input;
  Floats output(4, 9);
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(7), memory_of(input, output));
  CHECK(execution.advance() == Turn::stuck);
  rank.transport.deliver(0, 2, bytes_of({5, 6}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{9, 5, 6, 9});
  CHECK(rank.transport.taken(0, 2));
  CHECK(rank.transport.received_call == all_reduce(7));
}

TEST_CASE("execution: a message may be put straight into its target") {
  FakeRank rank;
  rank.transport.puts_in_place = true;
  PlanWriter writer;
  writer.recv(2, 1, 2);
  const Floats input;
  Floats output(4, 9);
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(7), memory_of(input, output));
  rank.transport.deliver(0, 2, bytes_of({5, 6}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{9, 5, 6, 9});
}

TEST_CASE("execution: a fold takes its operands in the order of ranks, the own one in its place") {
  // Only from left to right is (1e8 + 1) + -1e8 + 1 = 1 in float32.
  const float values[] = {1e8F, 1, -1e8F, 1};
  for (int own = 0; own < 4; ++own) {
    for (bool in_place : {false, true}) {
      INFO("own ", own);
      FakeRank rank(own, 4);
      rank.transport.puts_in_place = in_place;
      std::vector<int> others;
      for (int other = 0; other < 4; ++other)
        if (other != own) others.push_back(other);
      PlanWriter writer;
      writer.fold(others, own, 0, 1);
      const Floats input{values[own]};
      Floats output{9};
      Floats places(3 * 16);
      Memory memory = memory_of(input, output);
      if (in_place) memory.places = std::as_writable_bytes(std::span(places)).data();
      Execution execution(rank.wiring);
      execution.add(writer.plan, all_reduce(1), memory);
      for (int other : others) rank.transport.deliver(0, other, bytes_of({values[other]}));
      CHECK(execution.advance() == Turn::done);
      CHECK(output == Floats{1});
    }
  }
}

TEST_CASE("execution: a fold without an own operand") {
  FakeRank rank;
  PlanWriter writer;
  writer.fold({1, 2}, -1, 0, 2);
  const Floats input;
  Floats output(2);
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory_of(input, output));
  rank.transport.deliver(0, 1, bytes_of({1, 2}));
  rank.transport.deliver(0, 2, bytes_of({30, 40}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{31, 42});
}

TEST_CASE("execution: a message that is passed on goes as it is, or as it was folded into, if its memory can be had") {
  for (const bool hands_over : {true, false}) {
    for (const bool folds : {true, false}) {
      for (const auto& [unread, takes_over, streams] :
           {std::array{true, false, false}, {false, false, false}, {false, true, false}, {false, true, true}}) {
        INFO(hands_over, folds, unread, takes_over, streams);
        FakeRank rank;
        rank.transport.hands_over = hands_over;
        PlanWriter writer;
        writer.plan.takes_over = takes_over;
        const std::size_t count = 5000;  // more than one piece
        if (folds)
          writer.fold({1}, 0, 0, count);
        else
          writer.recv(1, 0, count);
        writer.send({2}, 0, count).source_buffer = Buffer::output;
        for (PlanStep& step : writer.plan.lanes[0]) step.kept = 3;
        writer.plan.lanes[0][0].unread = unread;
        writer.plan.lanes[0][0].streams = streams;
        Floats input(count);
        Floats message(count);
        for (std::size_t i = 0; i < count; ++i) {
          input[i] = static_cast<float>(i);
          message[i] = static_cast<float>(7 * i);
        }
        Floats output(count, -1);
        Execution execution(rank.wiring);
        execution.add(writer.plan, all_reduce(1), memory_of(input, output));
        rank.transport.deliver(0, 1, std::as_bytes(std::span(message)));
        rank.transport.room = 0;
        CHECK(execution.advance() == Turn::moved);
        rank.transport.room = 1;
        CHECK(execution.advance() == Turn::done);
        CHECK(rank.transport.taken(0, 1));
        Floats expected(count);
        for (std::size_t i = 0; i < count; ++i) expected[i] = static_cast<float>((folds ? 8 : 7) * i);
        CHECK(output == (hands_over && unread ? Floats(count, -1) : expected));
        REQUIRE(rank.transport.sends.size() == 1);
        const FakeTransport::Sent& sent = rank.transport.sends[0];
        CHECK((sent.data == std::as_bytes(std::span(output)).data()) == !hands_over);
        CHECK(std::equal(sent.data, sent.data + sent.bytes, std::as_bytes(std::span(expected)).data()));
      }
    }
  }
}

TEST_CASE("execution: a fold waits for its messages one after another, and keeps them until it is done") {
  FakeRank rank;
  PlanWriter writer;
  writer.fold({1, 2}, 0, 0, 1);
  const Floats input{100};
  Floats output{9};
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(3), memory_of(input, output));
  CHECK(execution.advance() == Turn::stuck);
  CHECK(execution.waiting_for().rank == 1);
  CHECK(execution.waiting_for().call == all_reduce(3));
  rank.transport.deliver(0, 1, bytes_of({1}));
  CHECK(execution.advance() == Turn::stuck);
  CHECK(execution.waiting_for().rank == 2);
  CHECK_FALSE(rank.transport.taken(0, 1));
  CHECK(output == Floats{9});
  rank.transport.deliver(0, 2, bytes_of({20}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{121});
  CHECK(rank.transport.taken(0, 1));
  CHECK(rank.transport.taken(0, 2));
}

TEST_CASE("execution: a lane's steps are taken in order") {
  FakeRank rank;
  PlanWriter writer;
  writer.copy(0, 1, 1);
  writer.recv(1, 0, 1);
  writer.send({2}, 0, 1);
  const Floats input{4};
  Floats output{9, 9};
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory_of(input, output));
  CHECK(execution.advance() == Turn::moved);
  CHECK(output == Floats{9, 4});
  CHECK(execution.advance() == Turn::stuck);
  CHECK(rank.transport.sends.empty());
  rank.transport.deliver(0, 1, bytes_of({7}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{7, 4});
  CHECK(rank.transport.sends.size() == 1);
}

TEST_CASE("execution: receives that may be taken in any order are taken as they come, one rank's in turn") {
  FakeRank rank(0, 4);
  PlanWriter writer;
  const int from[] = {1, 2, 3, 1, 2, 3, 1};
  for (std::size_t i = 0; i < 6; ++i) writer.recv(from[i], i, 1).in_any_order = static_cast<std::uint32_t>(6 - i);
  writer.recv(1, 6, 1);
  const Floats input;
  Floats output(7, 9);
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory_of(input, output));
  CHECK(execution.advance() == Turn::stuck);
  rank.transport.deliver(0, 3, bytes_of({30}));
  CHECK(execution.advance() == Turn::moved);
  CHECK(output == Floats{9, 9, 30, 9, 9, 9, 9});
  CHECK(execution.waiting_for().rank == 1);
  CHECK(execution.advance() == Turn::stuck);
  rank.transport.deliver(0, 2, bytes_of({20}));
  rank.transport.deliver(0, 2, bytes_of({21}));
  rank.transport.deliver(0, 3, bytes_of({31}));
  CHECK(execution.advance() == Turn::moved);
  CHECK(output == Floats{9, 20, 30, 9, 21, 31, 9});
  rank.transport.deliver(0, 1, bytes_of({10}));
  CHECK(execution.advance() == Turn::moved);  // over those that were taken
  CHECK(output == Floats{10, 20, 30, 9, 21, 31, 9});
  CHECK(execution.advance() == Turn::stuck);
  rank.transport.deliver(0, 1, bytes_of({11}));
  rank.transport.deliver(0, 1, bytes_of({12}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{10, 20, 30, 11, 21, 31, 12});
  CHECK(execution.has_ended());
}

TEST_CASE("execution: a transport that fails out of turn ends the call") {
  FakeRank rank(0, 4);
  FakeTransport second;
  second.broken = true;
  rank.wiring.transports[1] = &second;
  rank.wiring.routes.transport[2] = 1;
  PlanWriter writer;
  writer.recv(1, 0, 1).in_any_order = 2;
  writer.recv(2, 1, 1).in_any_order = 1;
  const Floats input;
  Floats output(2, 9);
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory_of(input, output));
  CHECK(execution.advance() == Turn::failed);
  CHECK(execution.failure().message() == "the line is dead");
}

TEST_CASE("execution: a row longer than what is looked at ends all the same") {
  constexpr int others = 150;
  FakeRank rank(0, others + 1);
  PlanWriter writer;
  for (int i = 0; i < others; ++i)
    writer.recv(i + 1, static_cast<std::size_t>(i), 1).in_any_order = static_cast<std::uint32_t>(others - i);
  const Floats input;
  Floats output(others, 0);
  Floats expected(others);
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory_of(input, output));
  for (int i = others; i > 0; --i) {
    rank.transport.deliver(0, i, bytes_of({static_cast<float>(i)}));
    expected[static_cast<std::size_t>(i - 1)] = static_cast<float>(i);
    const Turn turn = execution.advance();
    CHECK(turn == (i == 1 ? Turn::done : i > 64 ? Turn::stuck : Turn::moved));
  }
  CHECK(output == expected);
}

}  // namespace paceline
