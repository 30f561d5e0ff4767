// Several lanes at once: the channels of a plan, or plans of their own.
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

TEST_CASE("execution: channels run side by side") {
  FakeRank rank;
  PlanWriter writer;
  writer.recv(1, 0, 1, 0);
  writer.recv(1, 1, 1, 1);
  const Floats input;
  Floats output{9, 9};
  Execution execution(rank.wiring);
  CHECK(execution.add(writer.plan, all_reduce(1), memory_of(input, output)) == 1);
  rank.transport.deliver(1, 1, bytes_of({5}));
  CHECK(execution.advance() == Turn::moved);
  CHECK(output == Floats{9, 5});
  CHECK(execution.waiting_for().rank == 1);
  rank.transport.deliver(0, 1, bytes_of({4}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{4, 5});
}

TEST_CASE("execution: each channel folds in places of its own") {
  FakeRank rank;
  rank.transport.puts_in_place = true;
  PlanWriter writer;
  writer.fold({1, 2}, -1, 0, 1, 0);
  writer.fold({1, 2}, -1, 1, 1, 1);
  writer.plan.place_bytes = 2 * 64;
  const Floats input;
  Floats output{9, 9};
  Floats places(4 * 16);
  Memory memory = memory_of(input, output);
  memory.places = std::as_writable_bytes(std::span(places)).data();
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory);
  rank.transport.deliver(0, 1, bytes_of({1}));
  rank.transport.deliver(1, 1, bytes_of({10}));
  CHECK(execution.advance() == Turn::stuck);
  rank.transport.deliver(1, 2, bytes_of({20}));
  rank.transport.deliver(0, 2, bytes_of({2}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{3, 30});
}

TEST_CASE("execution: a send without room is tried again") {
  FakeRank rank;
  rank.transport.room = 0;
  PlanWriter writer;
  writer.send({2}, 0, 1);
  const Floats input{1};
  Floats output;
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory_of(input, output));
  CHECK(execution.advance() == Turn::stuck);
  CHECK(execution.waiting_for().rank == -1);
  rank.transport.held_by = 2;
  CHECK(execution.waiting_for().rank == 2);
  CHECK(execution.waiting_for().owed);
  rank.transport.held_by = 1;  // another message is in the way
  CHECK(execution.waiting_for().rank == 1);
  CHECK_FALSE(execution.waiting_for().owed);
  CHECK(rank.wiring.posted[0][0] == 0);
  rank.transport.room = 1;
  CHECK(execution.advance() == Turn::done);
}

TEST_CASE("execution: a step writes when the sends before it have left, counted from where the call began") {
  for (const Action action : {Action::recv, Action::recv_reduce, Action::copy}) {
    FakeRank rank;
    rank.wiring.posted[0][0] = 10;  // of earlier calls
    rank.transport.left = {10, 0};
    PlanWriter writer;
    writer.send({1}, 0, 1);
    writer.send({1}, 0, 1);
    PlanStep& write = action == Action::recv          ? writer.recv(2, 0, 1)
                      : action == Action::recv_reduce ? writer.fold({1, 2}, -1, 0, 1)
                                                      : writer.copy(1, 0, 1);
    write.after[0] = 1;
    const Floats input{1, 7};
    Floats output{9};
    Execution execution(rank.wiring);
    execution.add(writer.plan, all_reduce(1), memory_of(input, output));
    rank.transport.deliver(0, 1, bytes_of({3}));
    rank.transport.deliver(0, 2, bytes_of({4}));
    CHECK(execution.advance() == Turn::moved);
    CHECK(execution.advance() == Turn::stuck);
    CHECK(output == Floats{9});
    rank.transport.held_by = 1;
    CHECK(execution.waiting_for().rank == 1);
    CHECK_FALSE(execution.waiting_for().owed);
    rank.transport.left = {11, 0};
    CHECK(execution.advance() == Turn::moved);
    CHECK(output == Floats{action == Action::copy ? 7.F : action == Action::recv ? 4.F : 7.F});
    CHECK(execution.advance() == Turn::stuck);  // the second send has not left
    CHECK(execution.waiting_for().rank == 1);
    CHECK(execution.waiting_for().call == all_reduce(1));
    CHECK_FALSE(execution.waiting_for().owed);
    CHECK_FALSE(execution.has_ended());
    rank.transport.left = {12, 0};
    CHECK(execution.advance() == Turn::done);
    CHECK(execution.has_ended());
    CHECK(execution.waiting_for().rank == -1);
  }
}

TEST_CASE("execution: it has ended when everything has left, on every channel and transport") {
  FakeRank rank;
  FakeTransport second;
  rank.wiring.transports[1] = &second;
  rank.wiring.routes.transport[2] = 1;
  PlanWriter writer;
  writer.send({1}, 0, 1, 1);
  writer.send({2}, 0, 1, 0).transport = 1;
  const Floats input{1};
  Floats output;
  rank.transport.left = {0, 0};
  second.left = {0, 0};
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory_of(input, output));
  CHECK(execution.advance() == Turn::moved);
  CHECK(execution.advance() == Turn::stuck);
  rank.transport.left = {0, 1};
  CHECK(execution.advance() == Turn::stuck);
  second.left = {1, 0};
  CHECK(execution.advance() == Turn::done);
  CHECK(second.sends[0].to == std::vector{2});
}

TEST_CASE("execution: messages come by the transport that reaches their rank") {
  FakeRank rank;
  FakeTransport second;
  rank.wiring.transports[1] = &second;
  rank.wiring.routes.transport[2] = 1;
  PlanWriter writer;
  writer.fold({1, 2}, -1, 0, 1);
  const Floats input;
  Floats output{9};
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory_of(input, output));
  rank.transport.deliver(0, 1, bytes_of({1}));
  second.deliver(0, 2, bytes_of({2}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{3});
  CHECK(second.taken(0, 2));
}

TEST_CASE("execution: of a pair's calls the receive lacks a message, the send only room") {
  const Call pair = make_call(Collective::send, DataType::float32, Operation::sum, 0, 1, 7);
  FakeRank rank;
  rank.transport.room = 0;
  rank.transport.held_by = 2;
  PlanWriter send;
  send.send({2}, 0, 1);
  PlanWriter recv;
  recv.recv(1, 0, 1);
  const Floats input{1};
  Floats output{9};
  Execution execution(rank.wiring);
  execution.add(send.plan, pair, memory_of(input, output));
  CHECK(execution.advance() == Turn::stuck);
  CHECK(execution.waiting_for().rank == 2);
  CHECK_FALSE(execution.waiting_for().owed);
  execution.clear();
  execution.add(recv.plan, pair, memory_of(input, output));
  CHECK(execution.advance() == Turn::stuck);
  CHECK(execution.waiting_for().rank == 1);
  CHECK(execution.waiting_for().owed);
}

TEST_CASE("execution: a plan that comes after another waits for its end") {
  FakeRank rank;
  PlanWriter first;
  first.recv(1, 0, 1);
  PlanWriter second;
  second.recv(1, 1, 1);
  PlanWriter third;
  third.send({2}, 0, 1);
  const Floats input{1};
  Floats output{9, 9};
  Execution execution(rank.wiring);
  const int lane = execution.add(first.plan, all_reduce(1), memory_of(input, output));
  CHECK(execution.add(second.plan, all_reduce(2), memory_of(input, output), lane) == lane + 1);
  execution.add(third.plan, all_reduce(3), memory_of(input, output));
  CHECK(execution.advance() == Turn::moved);  // the third waits for none
  CHECK(rank.transport.sends.size() == 1);
  CHECK(execution.waiting_for().call == all_reduce(1));
  rank.transport.deliver(0, 1, bytes_of({4}));
  CHECK(execution.advance() == Turn::moved);
  CHECK(execution.waiting_for().call == all_reduce(2));
  rank.transport.deliver(0, 1, bytes_of({5}));
  CHECK(execution.advance() == Turn::done);
  CHECK(output == Floats{4, 5});
}

TEST_CASE("execution: many plans at once, each with a fold under way") {
  constexpr int plans = 20;
  FakeRank rank(0, plans + 2);
  std::vector<PlanWriter> writers(plans);
  const Floats input{100};
  Floats output(plans, 9);
  Execution execution(rank.wiring);
  for (int i = 0; i < plans; ++i) {
    writers[static_cast<std::size_t>(i)].fold({i + 1, plans + 1}, 0, static_cast<std::size_t>(i), 1);
    execution.add(writers[static_cast<std::size_t>(i)].plan, all_reduce(1), memory_of(input, output));
    rank.transport.deliver(0, i + 1, bytes_of({static_cast<float>(i)}));
  }
  CHECK(execution.advance() == Turn::stuck);
  for (int i = 0; i < plans; ++i) rank.transport.deliver(0, plans + 1, bytes_of({1000}));
  CHECK(execution.advance() == Turn::done);
  for (int i = 0; i < plans; ++i) CHECK(output[static_cast<std::size_t>(i)] == static_cast<float>(1100 + i));
}

TEST_CASE("execution: a transport's failure ends it, and is its reason") {
  FakeRank rank;
  rank.transport.broken = true;
  PlanWriter writer;
  writer.recv(1, 0, 1);
  const Floats input;
  Floats output{9};
  Execution execution(rank.wiring);
  execution.add(writer.plan, all_reduce(1), memory_of(input, output));
  CHECK(execution.advance() == Turn::failed);
  CHECK(execution.failure().message() == "the line is dead");
}

TEST_CASE("execution: cleared, it runs the next call") {
  FakeRank rank;
  PlanWriter writer;
  writer.send({1}, 0, 1);
  writer.recv(1, 0, 1);
  const Floats input{1};
  Floats output{9};
  Execution execution(rank.wiring);
  for (std::uint32_t call = 1; call <= 3; ++call) {
    execution.clear();
    execution.add(writer.plan, all_reduce(call), memory_of(input, output));
    rank.transport.deliver(0, 1, bytes_of({static_cast<float>(call)}));
    CHECK(execution.advance() == Turn::done);
    CHECK(output == Floats{static_cast<float>(call)});
    CHECK(rank.wiring.posted[0][0] == call);
  }
}

}  // namespace paceline
