#include "engine/plan.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace paceline {
namespace {

constexpr Buffer in = Buffer::input;
constexpr Buffer out = Buffer::output;
constexpr Buffer scratch = Buffer::scratch;

Schedule of(Collective collective, int ranks, std::size_t count, bool in_place = false) {
  return Schedule({.collective = collective, .ranks = ranks, .count = count, .in_place = in_place},
                  {.chunk = SIZE_MAX});
}

// Rank 0's routes: transport[i] reaches rank i; those of `keeps` may read a message's data after accepting it.
Routes routes(std::vector<std::uint8_t> transport, std::array<bool, max_transports> keeps = {}) {
  Routes made;
  made.transport = std::move(transport);
  made.keeps_data = keeps;
  return made;
}

Plan bind_floats(Schedule& schedule, const Routes& made) {
  return bind(schedule, made, DataType::float32, Operation::sum);
}

std::vector<int> peers_of(const Plan& plan, const PlanStep& step) {
  const auto first = plan.peers.begin() + static_cast<std::ptrdiff_t>(step.first_peer);
  return {first, first + static_cast<std::ptrdiff_t>(step.peer_count)};
}

// One step as an algorithm would have it, on rank 0.
void send(Schedule& schedule, Region from, std::vector<int> to = {1}, int channel = 0) {
  Step step;
  step.action = Action::send;
  step.channel = static_cast<std::uint8_t>(channel);
  step.source = from;
  schedule.append(0, step, to);
}

void recv(Schedule& schedule, Region to, int from = 1, int channel = 0) {
  Step step;
  step.action = Action::recv;
  step.channel = static_cast<std::uint8_t>(channel);
  step.target = to;
  schedule.append(0, step, std::vector{from});
}

void copy(Schedule& schedule, Region from, Region to) {
  Step step;
  step.action = Action::copy;
  step.source = from;
  step.target = to;
  schedule.append(0, step, {});
}

// What the last step of channel 0 waits for, of the first transport's sends.
std::uint32_t waits_for(Schedule& schedule, std::array<bool, max_transports> keeps = {true, false}) {
  const Plan plan = bind_floats(schedule, routes(std::vector<std::uint8_t>(8, 0), keeps));
  return plan.lanes[0].back().after[0];
}

// Whether what the first step of channel 0 sends stays.
bool first_stays(Schedule& schedule) {
  return bind_floats(schedule, routes(std::vector<std::uint8_t>(8, 0))).lanes[0].front().stays;
}

}  // namespace

TEST_CASE("plan: steps in bytes, in the order of the schedule") {
  Schedule schedule = of(Collective::all_reduce, 3, 100);
  schedule.need_scratch(0, 17);
  send(schedule, {in, 10, 20}, {1, 2});
  recv(schedule, {scratch, 5, 7}, 2);
  copy(schedule, {scratch, 5, 7}, {out, 30, 7});
  const Plan plan = bind(schedule, routes({0, 0, 0}), DataType::float64, Operation::sum);
  CHECK(plan.element_bytes == 8);
  CHECK(plan.scratch_bytes == 17 * 8);
  REQUIRE(plan.lanes.size() == 1);
  const auto& lane = plan.lanes[0];
  REQUIRE(lane.size() == 3);

  CHECK(lane[0].action == Action::send);
  CHECK(lane[0].source_buffer == in);
  CHECK(lane[0].source == 80);
  CHECK(lane[0].bytes == 160);
  CHECK(peers_of(plan, lane[0]) == std::vector{1, 2});

  CHECK(lane[1].action == Action::recv);
  CHECK(lane[1].target_buffer == scratch);
  CHECK(lane[1].target == 40);
  CHECK(lane[1].bytes == 56);
  CHECK(peers_of(plan, lane[1]) == std::vector{2});

  CHECK(lane[2].action == Action::copy);
  CHECK(lane[2].source_buffer == scratch);
  CHECK(lane[2].source == 40);
  CHECK(lane[2].target_buffer == out);
  CHECK(lane[2].target == 240);
  CHECK(lane[2].bytes == 56);
}

TEST_CASE("plan: a fold keeps the place of its own operand") {
  Schedule schedule = of(Collective::all_reduce, 3, 100);
  Step step;
  step.action = Action::recv_reduce;
  step.own = 1;
  step.source = {in, 3, 4};
  step.target = {out, 5, 4};
  schedule.append(0, step, std::vector{1, 2});
  const Plan plan = bind_floats(schedule, routes({0, 0, 0}));
  const PlanStep& fold = plan.lanes[0][0];
  CHECK(fold.own == 1);
  CHECK(fold.source == 12);
  CHECK(fold.target == 20);
  CHECK(fold.bytes == 16);
  CHECK(peers_of(plan, fold) == std::vector{1, 2});
}

TEST_CASE("plan: the fold of its type and operation; averages and products by a factor are sums") {
  Schedule schedule = of(Collective::all_reduce, 2, 1);
  const auto fold = [&](DataType type, Operation op) { return bind(schedule, routes({0, 0}), type, op).fold; };
  CHECK((fold(DataType::int32, Operation::max) == fold_function(DataType::int32, Operation::max)));
  CHECK((fold(DataType::float16, Operation::avg) == fold_function(DataType::float16, Operation::sum)));
  CHECK((fold(DataType::float64, Operation::premulsum) == fold_function(DataType::float64, Operation::sum)));
  Schedule gather = of(Collective::all_gather, 2, 1);
  CHECK((bind_floats(gather, routes({0, 0})).fold == nullptr));
}

TEST_CASE("plan: each channel is a lane") {
  Schedule schedule = of(Collective::all_reduce, 2, 100);
  send(schedule, {in, 0, 1}, {1}, 0);
  send(schedule, {in, 1, 1}, {1}, 1);
  send(schedule, {in, 2, 1}, {1}, 0);
  const Plan plan = bind_floats(schedule, routes({0, 0}));
  REQUIRE(plan.lanes.size() == 2);
  REQUIRE(plan.lanes[0].size() == 2);
  REQUIRE(plan.lanes[1].size() == 1);
  CHECK(plan.lanes[0][1].source == 8);
  CHECK(plan.lanes[1][0].source == 4);
  CHECK(plan.lanes[1][0].channel == 1);
}

TEST_CASE("plan: a send for ranks of several transports becomes one for each transport") {
  Schedule schedule = of(Collective::broadcast, 5, 100);
  send(schedule, {in, 0, 4}, {1, 2, 3, 4});
  const Plan plan = bind_floats(schedule, routes({0, 1, 0, 1, 0}));
  const auto& lane = plan.lanes[0];
  REQUIRE(lane.size() == 2);
  for (const PlanStep& step : lane) {
    CHECK(step.action == Action::send);
    CHECK(step.bytes == 16);
  }
  CHECK(lane[0].transport == 0);
  CHECK(peers_of(plan, lane[0]) == std::vector{2, 4});
  CHECK(lane[1].transport == 1);
  CHECK(peers_of(plan, lane[1]) == std::vector{1, 3});
}

TEST_CASE("plan: what goes to all ranks does so on every transport, at both ends") {
  Schedule schedule = of(Collective::broadcast, 4, 2);
  schedule.multicast({0, in, 0}, std::vector<Place>{{1, out, 0}, {2, out, 0}, {3, out, 0}}, 2);
  schedule.move({0, in, 0}, {1, out, 1}, 1);
  const Plan sender = bind_floats(schedule, routes({0, 0, 1, 0}));
  REQUIRE(sender.lanes[0].size() == 3);
  CHECK(sender.lanes[0][0].to_all);
  CHECK(sender.lanes[0][1].to_all);
  CHECK_FALSE(sender.lanes[0][2].to_all);
  Routes of_one = routes({0, 0, 1, 0});
  of_one.rank = 1;
  const Plan receiver = bind_floats(schedule, of_one);
  REQUIRE(receiver.lanes[0].size() == 2);
  CHECK(receiver.lanes[0][0].to_all);
  CHECK_FALSE(receiver.lanes[0][1].to_all);
}

TEST_CASE("plan: a send for ranks of one transport stays one") {
  Schedule schedule = of(Collective::broadcast, 3, 100);
  send(schedule, {in, 0, 4}, {1, 2});
  const Plan plan = bind_floats(schedule, routes({0, 1, 1}));
  REQUIRE(plan.lanes[0].size() == 1);
  CHECK(plan.lanes[0][0].transport == 1);
  CHECK(peers_of(plan, plan.lanes[0][0]) == std::vector{1, 2});
}

TEST_CASE("plan: only where a transport needs places is there room for the largest fold's messages") {
  Schedule schedule = of(Collective::all_reduce, 4, 1000);
  Step step;
  step.action = Action::recv_reduce;
  step.target = {out, 0, 100};  // 400 bytes, 448 in whole lines
  schedule.append(0, step, std::vector{1, 2, 3});
  step.target = {out, 0, 200};  // 800 bytes, 832
  schedule.append(0, step, std::vector{1});
  Routes made = routes({0, 0, 0, 0});
  CHECK(bind_floats(schedule, made).place_bytes == 0);
  made.needs_place = {false, true};
  CHECK(bind_floats(schedule, made).place_bytes == 3 * 448);
}

// ---- What a write waits for ----

TEST_CASE("plan: a write waits for the last send that reads where it writes") {
  struct Case {
    Region target;
    std::uint32_t after;
  };
  for (const Case& wanted : {Case{{out, 0, 10}, 1},    // the first
                             Case{{out, 9, 1}, 1},     //
                             Case{{out, 10, 1}, 2},    // the second
                             Case{{out, 9, 2}, 2},     // both
                             Case{{out, 15, 100}, 3},  // the second and third
                             Case{{out, 0, 100}, 3},   // all
                             Case{{out, 30, 5}, 0},    // between
                             Case{{out, 20, 20}, 0},   // exactly between
                             Case{{out, 50, 5}, 0},    // behind
                             Case{{in, 0, 100}, 0}, Case{{scratch, 0, 100}, 0}}) {
    INFO("[", wanted.target.offset, ", +", wanted.target.count, ")");
    Schedule schedule = of(Collective::all_reduce, 2, 1000);
    send(schedule, {out, 0, 10});
    send(schedule, {out, 10, 10});
    send(schedule, {out, 40, 10});
    recv(schedule, wanted.target);
    CHECK(waits_for(schedule) == wanted.after);
  }
}

TEST_CASE("plan: a long send far before is seen among short ones") {
  Schedule schedule = of(Collective::all_reduce, 2, 1000);
  send(schedule, {out, 0, 500});
  for (std::size_t i = 0; i < 20; ++i) send(schedule, {out, 10 * i + 1, 1});
  recv(schedule, {out, 499, 1});
  CHECK(waits_for(schedule) == 1);
}

TEST_CASE("plan: of two sends from one place, the longer and the later both count") {
  Schedule schedule = of(Collective::all_reduce, 2, 1000);
  send(schedule, {out, 0, 100});
  send(schedule, {out, 0, 10});
  recv(schedule, {out, 5, 1});
  CHECK(waits_for(schedule) == 2);
  recv(schedule, {out, 90, 1});
  CHECK(waits_for(schedule) >= 1);
}

TEST_CASE("plan: every kind of write waits") {
  for (Action action : {Action::recv, Action::recv_reduce, Action::copy}) {
    Schedule schedule = of(Collective::all_reduce, 2, 1000);
    send(schedule, {out, 0, 10});
    Step step;
    step.action = action;
    step.target = {out, 5, 1};
    schedule.append(0, step, action == Action::copy ? std::vector<int>{} : std::vector{1});
    CHECK(waits_for(schedule) == 1);
  }
}

TEST_CASE("plan: no write waits where the transport has read the data when it accepts a message") {
  Schedule schedule = of(Collective::all_reduce, 2, 1000);
  send(schedule, {out, 0, 10});
  recv(schedule, {out, 0, 10});
  CHECK(waits_for(schedule, {false, false}) == 0);
  CHECK(waits_for(schedule, {false, true}) == 0);
  CHECK(waits_for(schedule, {true, false}) == 1);
}

TEST_CASE("plan: sends are counted by transport, and by lane") {
  Schedule schedule = of(Collective::all_reduce, 3, 1000);
  send(schedule, {out, 500, 10}, {1}, 1);  // another lane
  send(schedule, {out, 0, 10}, {1});       // transport 0, its first
  send(schedule, {out, 20, 10}, {2});      // transport 1, its first
  send(schedule, {out, 40, 10}, {1, 2});   // both, their second
  recv(schedule, {out, 5, 20});
  recv(schedule, {out, 45, 1});
  recv(schedule, {out, 500, 1});
  const Plan plan = bind_floats(schedule, routes({0, 0, 1}, {true, true}));
  const auto& lane = plan.lanes[0];
  REQUIRE(lane.size() == 7);
  CHECK(lane[4].after == std::array<std::uint32_t, max_transports>{1, 1});
  CHECK(lane[5].after == std::array<std::uint32_t, max_transports>{2, 2});
  CHECK(lane[6].after == std::array<std::uint32_t, max_transports>{0, 0});

  // Of a transport that keeps nothing, sends still count: its numbers are the messages'.
  const Plan half = bind_floats(schedule, routes({0, 0, 1}, {false, true}));
  CHECK(half.lanes[0][4].after == std::array<std::uint32_t, max_transports>{0, 1});
  CHECK(half.lanes[0][5].after == std::array<std::uint32_t, max_transports>{0, 2});
}

TEST_CASE("plan: in place, input and output are one memory") {
  Schedule apart = of(Collective::all_reduce, 2, 1000);
  send(apart, {in, 0, 10});
  recv(apart, {out, 5, 1});
  CHECK(waits_for(apart) == 0);

  Schedule together = of(Collective::all_reduce, 2, 1000, true);
  send(together, {in, 0, 10});
  recv(together, {out, 5, 1});
  CHECK(waits_for(together) == 1);
}

TEST_CASE("plan: in place, the input lies where the collective has it") {
  // Rank 1's block of an all-gather of 10 is output 10 to 20.
  for (const auto& [offset, waits] :
       {std::pair{0, 0U}, std::pair{9, 0U}, std::pair{10, 1U}, std::pair{19, 1U}, std::pair{20, 0U}}) {
    Schedule schedule = of(Collective::all_gather, 3, 10, true);
    Step step;
    step.action = Action::send;
    step.source = {in, 0, 10};
    schedule.append(1, step, std::vector{0});
    step.action = Action::recv;
    step.target = {out, static_cast<std::size_t>(offset), 1};
    schedule.append(1, step, std::vector{0});
    Routes made = routes({0, 0, 0}, {true, false});
    made.rank = 1;
    CHECK(bind_floats(schedule, made).lanes[0][1].after[0] == waits);
  }
  // Rank 2's part of a reduce-scatter of 10 is input 20 to 30: output 0 is input 20.
  for (const auto& [offset, waits] : {std::pair{19, 0U}, std::pair{20, 1U}, std::pair{21, 0U}}) {
    Schedule schedule = of(Collective::reduce_scatter, 3, 10, true);
    Step step;
    step.action = Action::send;
    step.source = {in, static_cast<std::size_t>(offset), 1};
    schedule.append(2, step, std::vector{0});
    step.action = Action::recv;
    step.target = {out, 0, 1};
    schedule.append(2, step, std::vector{0});
    Routes made = routes({0, 0, 0}, {true, false});
    made.rank = 2;
    CHECK(bind_floats(schedule, made).lanes[0][1].after[0] == waits);
  }
}

// ---- What stays ----

TEST_CASE("plan: receives in a row of long messages may be taken in any order, until one writes where another does") {
  constexpr std::size_t shortest = 2048;  // floats of 8 KiB
  Schedule schedule = of(Collective::gather, 8, 100'000);
  recv(schedule, {out, 0, shortest}, 1);
  recv(schedule, {out, shortest, shortest}, 2);
  recv(schedule, {scratch, 0, shortest}, 3);
  recv(schedule, {scratch, shortest - 1, shortest}, 4);  // its first element is the last of the one before
  recv(schedule, {out, 0, shortest}, 5);
  recv(schedule, {out, 50'000, shortest - 1}, 6);  // short
  recv(schedule, {out, 60'000, shortest}, 7);
  send(schedule, {in, 0, shortest});
  recv(schedule, {out, 70'000, shortest}, 1);
  recv(schedule, {out, 80'000, shortest}, 2, 1);
  const Plan plan = bind_floats(schedule, routes(std::vector<std::uint8_t>(8, 0)));
  std::vector<std::uint32_t> found;
  for (const PlanStep& step : plan.lanes[0]) found.push_back(step.in_any_order);
  CHECK(found == std::vector<std::uint32_t>{3, 2, 1, 2, 1, 0, 1, 0, 1});
  CHECK(plan.lanes[1][0].in_any_order == 1);
}

TEST_CASE("plan: long outputs are written past the cache, but for what is read again") {
  Schedule schedule = of(Collective::all_reduce, 2, 1000);
  recv(schedule, {out, 0, 10});
  recv(schedule, {out, 10, 10});
  recv(schedule, {scratch, 0, 10});
  Step fold;
  fold.action = Action::recv_reduce;
  fold.source = {in, 20, 10};
  fold.target = {out, 20, 10};
  fold.own = 0;
  schedule.append(0, fold, std::vector{1});
  send(schedule, {out, 10, 9});
  Routes made = routes({0, 0});
  const auto streams = [&] {
    std::vector<bool> found;
    const Plan plan = bind_floats(schedule, made);
    for (const PlanStep& step : plan.lanes[0]) found.push_back(step.streams);
    return found;
  };
  CHECK(streams() == std::vector{false, false, false, false, false});
  made.streaming_from = {4001, 4001};
  CHECK(streams() == std::vector{false, false, false, false, false});
  made.streaming_from.copies = 4000;
  CHECK(streams() == std::vector{true, false, false, false, false});
  made.streaming_from.folds = 4000;
  CHECK(streams() == std::vector{true, false, false, true, false});
}

TEST_CASE("plan: what no later step writes stays") {
  Schedule schedule = of(Collective::all_reduce, 2, 1000);
  recv(schedule, {out, 0, 10});  // before the send: of no account
  send(schedule, {out, 0, 10});
  send(schedule, {in, 0, 1000});
  recv(schedule, {out, 10, 10});
  recv(schedule, {scratch, 0, 1000});
  const Plan plan = bind_floats(schedule, routes({0, 0}));
  CHECK(plan.lanes[0][1].stays);
  CHECK(plan.lanes[0][2].stays);
}

TEST_CASE("plan: what a later step writes, if only one element of it, does not stay") {
  for (Action action : {Action::recv, Action::recv_reduce, Action::copy}) {
    for (std::size_t offset : {0, 5, 9}) {
      Schedule schedule = of(Collective::all_reduce, 2, 1000);
      send(schedule, {out, 0, 10});
      send(schedule, {out, 100, 10});
      Step step;
      step.action = action;
      step.target = {out, offset, 1};
      schedule.append(0, step, action == Action::copy ? std::vector<int>{} : std::vector{1});
      CHECK_FALSE(first_stays(schedule));
      CHECK(bind_floats(schedule, routes({0, 0})).lanes[0][1].stays);
    }
  }
}

TEST_CASE("plan: in place, a write to the output changes the input") {
  Schedule apart = of(Collective::all_reduce, 2, 1000);
  send(apart, {in, 0, 10});
  recv(apart, {out, 5, 1});
  CHECK(first_stays(apart));

  Schedule together = of(Collective::all_reduce, 2, 1000, true);
  send(together, {in, 0, 10});
  recv(together, {out, 5, 1});
  CHECK_FALSE(first_stays(together));
}

TEST_CASE("plan: a send for several transports stays on all or on none") {
  Schedule schedule = of(Collective::all_reduce, 3, 1000);
  send(schedule, {out, 0, 10}, {1, 2});
  send(schedule, {in, 0, 10}, {1, 2});
  recv(schedule, {out, 0, 1});
  const Plan plan = bind_floats(schedule, routes({0, 0, 1}));
  REQUIRE(plan.lanes[0].size() == 5);
  CHECK_FALSE(plan.lanes[0][0].stays);
  CHECK_FALSE(plan.lanes[0][1].stays);
  CHECK(plan.lanes[0][2].stays);
  CHECK(plan.lanes[0][3].stays);
}

}  // namespace paceline
