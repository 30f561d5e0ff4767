#include "schedule/schedule.h"

#include <doctest/doctest.h>

#include <vector>

namespace paceline {
namespace {

constexpr Buffer in = Buffer::input;
constexpr Buffer out = Buffer::output;

Schedule of(Collective collective, int ranks, std::size_t count, std::size_t chunk, bool in_place = false) {
  return Schedule({.collective = collective, .ranks = ranks, .count = count, .in_place = in_place}, {.chunk = chunk});
}

std::vector<int> peers(Schedule& schedule, int rank, std::size_t step) {
  const auto span = schedule.peers(rank, schedule.steps(rank)[step]);
  return {span.begin(), span.end()};
}

}  // namespace

TEST_CASE("a move is cut into chunks, the moves of a round in turn") {
  Schedule schedule = of(Collective::scatter, 3, 5, 2);
  schedule.move({0, in, 5}, {1, out, 0}, 5);
  schedule.move({0, in, 10}, {2, out, 0}, 5);
  const auto steps = schedule.steps(0);
  REQUIRE(steps.size() == 6);
  const std::size_t offsets[] = {5, 10, 7, 12, 9, 14};
  const std::size_t counts[] = {2, 2, 2, 2, 1, 1};
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(steps[i].action == Action::send);
    CHECK(steps[i].source.offset == offsets[i]);
    CHECK(steps[i].source.count == counts[i]);
    CHECK(peers(schedule, 0, i) == std::vector{i % 2 == 0 ? 1 : 2});
  }
}

TEST_CASE("of each chunk, what leaves comes before what arrives") {
  Schedule schedule = of(Collective::all_to_all, 2, 2, 1);
  schedule.move({1, in, 0}, {0, out, 2}, 2);
  schedule.move({0, in, 2}, {1, out, 0}, 2);
  const auto steps = schedule.steps(0);
  REQUIRE(steps.size() == 4);
  CHECK(steps[0].action == Action::send);
  CHECK(steps[1].action == Action::recv);
  CHECK(steps[2].action == Action::send);
  CHECK(steps[3].action == Action::recv);
}

TEST_CASE("a multicast leaves once, and the sender's own place is a copy") {
  Schedule schedule = of(Collective::broadcast, 3, 4, 100);
  schedule.multicast({1, in, 0}, std::vector<Place>{{0, out, 0}, {1, out, 0}, {2, out, 0}}, 4);
  REQUIRE(schedule.steps(1).size() == 2);
  CHECK(schedule.steps(1)[0].action == Action::send);
  CHECK(peers(schedule, 1, 0) == std::vector{0, 2});
  CHECK(schedule.steps(1)[1].action == Action::copy);
  CHECK(schedule.steps(0)[0].action == Action::recv);
}

TEST_CASE("a copy onto itself vanishes") {
  Schedule whole = of(Collective::broadcast, 1, 4, 100, true);
  whole.move({0, in, 0}, {0, out, 0}, 4);
  CHECK(whole.steps(0).empty());

  Schedule block = of(Collective::all_gather, 3, 4, 100, true);
  block.move({2, in, 0}, {2, out, 8}, 4);
  CHECK(block.steps(2).empty());

  Schedule elsewhere = of(Collective::all_gather, 3, 4, 100, true);
  elsewhere.move({2, in, 0}, {2, out, 4}, 4);
  CHECK(elsewhere.steps(2).size() == 1);
}

TEST_CASE("a reduction folds in the order of ranks, with the local operand at its place") {
  Schedule schedule = of(Collective::reduce, 4, 4, 100);
  schedule.reduce(std::vector<Place>{{0, in, 0}, {2, in, 0}, {3, in, 0}}, Place{2, out, 0}, 4);
  REQUIRE(schedule.steps(2).size() == 1);
  const Step fold = schedule.steps(2)[0];
  CHECK(fold.action == Action::recv_reduce);
  CHECK(peers(schedule, 2, 0) == std::vector{0, 3});
  CHECK(fold.own == 1);
  CHECK(schedule.steps(1).empty());
}

TEST_CASE("a reduction for several ranks sends each operand once") {
  Schedule schedule = of(Collective::all_reduce, 3, 4, 100);
  const std::vector<Place> from{{0, in, 0}, {1, in, 0}, {2, in, 0}};
  schedule.reduce(from, std::vector<Place>{{0, out, 0}, {1, out, 0}, {2, out, 0}}, 4);
  REQUIRE(schedule.steps(1).size() == 2);
  CHECK(peers(schedule, 1, 0) == std::vector{0, 2});
  CHECK(peers(schedule, 1, 1) == std::vector{0, 2});
  CHECK(schedule.steps(1)[1].own == 1);
}

TEST_CASE("one operand is moved, not folded") {
  Schedule schedule = of(Collective::all_reduce, 1, 4, 100);
  schedule.reduce(std::vector<Place>{{0, in, 0}}, Place{0, out, 0}, 4);
  REQUIRE(schedule.steps(0).size() == 1);
  CHECK(schedule.steps(0)[0].action == Action::copy);
}

TEST_CASE("moves of nothing vanish") {
  Schedule schedule = of(Collective::all_reduce, 2, 1, 100);
  schedule.move({0, in, 0}, {1, out, 0}, 0);
  schedule.reduce(std::vector<Place>{{0, in, 0}, {1, in, 0}}, Place{0, out, 0}, 0);
  CHECK(schedule.steps(0).empty());
  CHECK(schedule.steps(1).empty());
}

}  // namespace paceline
