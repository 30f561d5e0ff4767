#include "schedule/schedule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
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

TEST_CASE("what goes to all other ranks says so, on both sides") {
  const auto flags = [](Schedule& schedule) {
    std::vector<std::vector<bool>> all(static_cast<std::size_t>(schedule.ranks()));
    for (int rank = 0; rank < schedule.ranks(); ++rank)
      for (const Step& step : schedule.steps(rank)) all[static_cast<std::size_t>(rank)].push_back(step.to_all);
    return all;
  };
  using Flags = std::vector<std::vector<bool>>;
  const std::vector<Place> everyone{{0, out, 0}, {1, out, 0}, {2, out, 0}};
  const std::vector<Place> others{{0, out, 0}, {2, out, 0}};
  const std::vector<Place> inputs{{0, in, 0}, {1, in, 0}, {2, in, 0}};

  Schedule broadcast = of(Collective::broadcast, 3, 4, 100);
  broadcast.multicast({1, in, 0}, everyone, 4);  // and the copy of its own does not
  broadcast.multicast({1, in, 0}, others, 4, 1);
  CHECK(flags(broadcast) == Flags{{true, true}, {true, true, false}, {true, true}});
  Schedule some = of(Collective::broadcast, 4, 4, 100);
  some.multicast({1, in, 0}, others, 4);
  some.move({1, in, 0}, {3, out, 0}, 4);
  CHECK(flags(some) == Flags{{false}, {false, false}, {false}, {false}});

  Schedule all_reduce = of(Collective::all_reduce, 3, 4, 100);
  all_reduce.reduce(inputs, everyone, 4);
  CHECK(flags(all_reduce) == Flags{{true, true}, {true, true}, {true, true}});
  Schedule reduce = of(Collective::reduce, 3, 4, 100);
  reduce.reduce(inputs, everyone[1], 4);
  CHECK(flags(reduce) == Flags{{false}, {false}, {false}});

  // One other rank is not many.
  Schedule pair = of(Collective::all_reduce, 2, 4, 100);
  pair.reduce(std::span(inputs).first(2), std::span(everyone).first(2), 4);
  pair.multicast({0, in, 0}, std::span(everyone).first(2), 4, 1);
  for (const auto& rank : flags(pair)) CHECK(std::ranges::count(rank, true) == 0);

  // One rank's part alone says the same.
  Schedule part({.collective = Collective::broadcast, .ranks = 3, .count = 4}, {.chunk = 100}, 2);
  part.multicast({1, in, 0}, everyone, 4);
  CHECK(part.steps(2)[0].to_all);
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

TEST_CASE("one rank's part is concerned by the moves that it sends or receives, the whole by all") {
  const Problem problem{.collective = Collective::broadcast, .ranks = 4, .count = 1};
  const Schedule part(problem, {}, 2);
  const Schedule whole(problem, {});
  for (int from = 0; from < 4; ++from) {
    for (int to = 0; to < 4; ++to) {
      CHECK(part.concerns(from, to) == (from == 2 || to == 2));
      CHECK(whole.concerns(from, to));
    }
  }
}

TEST_CASE("moves of nothing vanish") {
  Schedule schedule = of(Collective::all_reduce, 2, 1, 100);
  schedule.move({0, in, 0}, {1, out, 0}, 0);
  schedule.reduce(std::vector<Place>{{0, in, 0}, {1, in, 0}}, Place{0, out, 0}, 0);
  CHECK(schedule.steps(0).empty());
  CHECK(schedule.steps(1).empty());
}

}  // namespace paceline
