// The hops of cost formulas against the schedules that they speak of: the longest chain of messages.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "algorithms/table.h"
#include "algorithms/tested.h"
#include "base/index.h"

namespace paceline {
namespace {

// A rank's steps on one channel, which it takes in order.
struct Lane {
  int rank = 0;
  int channel = 0;
  std::vector<Step> steps;
  std::size_t next = 0;
  int chain = 0;  // messages on the longest chain that ends before the next step
};

// Messages by sender, receiver and channel: the chains that end with their sends.
using UnderWay = std::map<std::tuple<int, int, int>, std::deque<int>>;

// Takes the lane's next step, unless a message of it has not been sent.
bool takes_step(Lane& lane, const Schedule& schedule, UnderWay& under_way) {
  const Step& step = lane.steps[lane.next];
  if (step.action == Action::copy) return true;
  const auto peers = schedule.peers(lane.rank, step);
  if (step.action == Action::send) {
    for (const int peer : peers) under_way[{lane.rank, peer, lane.channel}].push_back(lane.chain);
    return true;
  }
  const auto from = [&](int peer) -> std::deque<int>& { return under_way[{peer, lane.rank, lane.channel}]; };
  if (!std::ranges::all_of(peers, [&](int peer) { return !from(peer).empty(); })) return false;
  for (const int peer : peers) {
    lane.chain = std::max(lane.chain, from(peer).front() + 1);
    from(peer).pop_front();
  }
  return true;
}

// The most messages of a schedule of which each waits for the one before.
int longest_chain(Schedule& schedule) {
  std::vector<Lane> lanes;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    for (int channel = 0; channel < max_channels; ++channel) {
      lanes.push_back({.rank = rank, .channel = channel, .steps = {}});
      for (const Step& step : schedule.steps(rank))
        if (step.channel == channel) lanes.back().steps.push_back(step);
    }
  }
  UnderWay under_way;
  for (bool went_on = true; went_on;) {
    went_on = false;
    for (Lane& lane : lanes)
      for (; lane.next < lane.steps.size() && takes_step(lane, schedule, under_way); ++lane.next) went_on = true;
  }
  int longest = 0;
  for (const Lane& lane : lanes) {
    REQUIRE(lane.next == lane.steps.size());
    longest = std::max(longest, lane.chain);
  }
  return longest;
}

// How far a formula may be off: so many hops more than the chain, or fewer.
struct Rounding {
  int more = 0;
  int fewer = 0;
};

bool is_power(int number, int base) {
  while (number % base == 0) number /= base;
  return number == 1;
}

Rounding rounding_of(std::string_view algorithm, int ranks, int radix) {
  const bool power_of_two = is_power(ranks, 2);
  // Counts all levels of the tree; in one that is not full there may be no way down with a message on each of them.
  if (algorithm == "knomial" && !is_power(ranks, radix)) return {.more = 1};
  // Count the scatter and then the ring or the exchanges, as published. But the root waits for nobody: the longest
  // chain goes from it round the ring, or misses one of the exchanges.
  if (algorithm == "scatter_ring") return {.more = static_cast<int>(std::bit_width(at(ranks - 1)))};
  if (algorithm == "scatter_doubling") return {.more = 1};
  // Count both messages of a pair (surplus.h); with few pairs no chain has both and a message of every round.
  if (!power_of_two && (algorithm == "recursive_doubling" || algorithm == "recursive_halving")) return {.more = 1};
  // Counts the exchanges of a rank, n - 1 in n rounds. It is alone in one of them, but others are so in others.
  if (algorithm == "pairwise" && ranks > 2) return {.fewer = 1};
  // Counts the deepest tree of each pass; the two of an all-reduce need not follow one another. But a rank takes its
  // steps in one order, so that a tree's message may wait for another's: where links differ (testing::paths_of(8)),
  // there are many trees.
  if (algorithm == "packed_trees") return {.more = 2, .fewer = ranks == 8 ? 10 : 2};
  return {};
}

CostModel hops_only() {
  constexpr double at_once = 1e300;
  CostModel model;
  model.start = 1;
  model.chunk_start = model.step = model.partner = model.board = model.receiver = 0;
  model.bandwidth = model.reduce_bandwidth = model.write_bandwidth = model.copy_bandwidth = at_once;
  return model;
}

}  // namespace

TEST_CASE("the hops in a cost formula are the longest chain of messages in the schedule") {
  testing::Served served;
  constexpr std::size_t uncut = 1 << 20;
  for (const Algorithm& algorithm : testing::tested()) {
    for (const Collective collective : algorithm.collectives) {
      for (const int n : {2, 3, 4, 6, 8, 13, 16}) {
        for (const int radix : {2, 3, 4}) {
          for (const int node_ranks : {1, 2}) {
            const Problem problem{
                .collective = collective, .ranks = n, .count = collective == Collective::barrier ? 0 : at(n) * 64};
            if (n % node_ranks != 0 || !served(algorithm, problem)) continue;
            const Parameters parameters{
                .chunk = uncut, .radix = radix, .node_ranks = node_ranks, .paths = testing::paths_of(n)};
            Schedule schedule(problem, parameters);
            algorithm.write(schedule);
            const int chain = longest_chain(schedule);
            const double hops = algorithm.cost(problem, parameters, hops_only());
            const Rounding rounding = rounding_of(algorithm.name, n, radix);
            INFO(fmt::format("{} {} ranks {} radix {} a node {}", algorithm.name, name(collective), n, radix,
                             node_ranks));
            constexpr double nothing = 1e-6;  // what bytes take that go at once
            CHECK(hops <= chain + rounding.more + nothing);
            CHECK(hops >= chain - rounding.fewer - nothing);
          }
        }
      }
    }
  }
}

}  // namespace paceline
