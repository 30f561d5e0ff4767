#include "tuning/node_links.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "topology/paths.h"
#include "tuning/choice.h"
#include "tuning/tuned.h"

namespace paceline {
namespace {

constexpr double fast = 125;  // bytes per us: 1 Gbit/s
constexpr double slow = 25;

NodeLinks links_of(int ranks) {
  NodeLinks links{std::vector<double>(static_cast<std::size_t>(ranks), fast), 20};
  links.rates.back() = slow;
  return links;
}

CostModel model_of(const NodeLinks& links) {
  CostModel model;
  model.start = model.chunk_start = links.start;
  model.bandwidth = *std::ranges::min_element(links.rates);
  model.duplex = model.multicast_share = model.passing_share = 1;
  return model;
}

}  // namespace

TEST_CASE("in a tournament each meets each other one once, two at a time") {
  for (int nodes = 2; nodes <= 33; ++nodes) {
    std::set<std::pair<int, int>> met;
    const int rounds = nodes - 1 + nodes % 2;
    for (int round = 0; round < rounds; ++round) {
      int idle = 0;
      for (int node = 0; node < nodes; ++node) {
        const int other = opponent(node, nodes, round);
        if (other < 0) {
          ++idle;
          continue;
        }
        REQUIRE(other < nodes);
        CHECK(other != node);
        CHECK(opponent(other, nodes, round) == node);
        if (node < other) CHECK(met.insert({node, other}).second);
      }
      CHECK(idle == nodes % 2);
    }
    CHECK(static_cast<int>(met.size()) == nodes * (nodes - 1) / 2);
    CHECK(opponent(0, nodes, rounds) == opponent(0, nodes, 0));
    for (int node = 0; node < nodes; ++node) CHECK(std::max(opponent(node, nodes, 0), opponent(node, nodes, 1)) >= 0);
  }
  CHECK(opponent(0, 1, 0) == -1);
}

TEST_CASE("who seems slow meets one who does not") {
  CHECK(second_looks({}).empty());
  CHECK(second_looks({100, 100}) == std::vector{-1, -1});
  CHECK(second_looks({25, 125}) == std::vector{1, 0});
  CHECK(second_looks({100, 20, 110, 90, 100}) == std::vector{1, 0, -1, -1, -1});
  CHECK(second_looks({20, 100, 30, 110, 125}) == std::vector{1, 0, 3, 2, -1});
  // All but one of the fast ones are looked at already.
  CHECK(second_looks({20, 20, 100, 100, 100}) == std::vector{2, 3, 0, 1, -1});
}

TEST_CASE("a long message takes what the slowest link on its way takes") {
  const NodeLinks links = links_of(4);
  const CostModel model = model_of(links);
  const std::size_t bytes = 4 << 20;
  const double direct =
      simulated_us(star(links), links.start, model, {Collective::broadcast, algorithm_named("direct"), bytes});
  // Side by side: of the root's link a third each, so the slow one alone is waited for. One after the other: all three.
  const auto length = static_cast<double>(bytes);
  CHECK(direct == doctest::Approx(0.8 * length / slow + 0.2 * (2 * length / fast + length / slow)).epsilon(0.01));
  const double ring =
      simulated_us(star(links), links.start, model, {Collective::all_gather, algorithm_named("ring"), bytes});
  CHECK(ring == doctest::Approx(3 * length / slow).epsilon(0.01));
}

TEST_CASE("what is chosen is the fastest that was simulated") {
  for (const int ranks : {2, 4, 7, 8}) {
    const NodeLinks links = links_of(ranks);
    const CostModel model = model_of(links);
    std::vector<double> times;
    const auto calls = simulated_calls(ranks);
    times.reserve(calls.size());
    for (const SimulatedCall& call : calls) times.push_back(simulated_us(star(links), links.start, model, call));
    CHECK(std::ranges::all_of(times, [](double time) { return time > 0 && std::isfinite(time); }));
    const Setting setting = simulated_setting(ranks, model, times);
    const auto tuned = Tuned::of({"", "", {setting}}, "tcp", ranks);
    REQUIRE(tuned != nullptr);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Problem problem{calls[i].collective, ranks, 0, calls[i].bytes / 4, false};
      const TableRow* const row = tuned->fastest(problem, calls[i].bytes);
      REQUIRE(row != nullptr);
      CAPTURE(row->algorithm->name);
      double chosen = 0;
      for (std::size_t j = 0; j < calls.size(); ++j)
        if (calls[j].collective == calls[i].collective && calls[j].bytes == calls[i].bytes &&
            calls[j].algorithm == row->algorithm)
          chosen = times[j];
      CHECK(chosen > 0);
      CHECK(chosen <= 1.04 * times[i]);
    }
  }
}

TEST_CASE("on a topology what goes by it is chosen where it is faster") {
  // Two groups of three, ten times as far from each other as inside; ranks in turn.
  Topology groups;
  const int left = groups.add(VertexKind::nvswitch, "left");
  const int right = groups.add(VertexKind::nvswitch, "right");
  groups.connect(left, right, LinkKind::nvlink, {0.1, 0});
  for (int rank = 0; rank < 6; ++rank)
    groups.connect(groups.add(VertexKind::gpu, fmt::format("rank{}", rank)), rank % 2 == 0 ? left : right,
                   LinkKind::nvlink, {1, 0});
  CostModel model = model_of(links_of(6));
  model.paths = std::make_shared<Paths>(groups, std::vector{0, 1, 2, 3, 4, 5});
  std::vector<double> times;
  for (const SimulatedCall& call : simulated_calls(6, model.paths.get()))
    times.push_back(simulated_us(groups, 20, model, call));
  const auto tuned = Tuned::of({"", "", {simulated_setting(6, model, times)}}, "tcp", 6);
  REQUIRE(tuned != nullptr);
  const std::size_t count = 1 << 18;
  const auto goes_by_it = [&](Collective collective, int root, const CostModel& by) {
    const auto choice = choose({collective, 6, root, count, false}, by, "", {}, tuned.get());
    REQUIRE(choice.ok());
    return choice->algorithm->finds != nullptr;
  };
  for (const int root : {0, 5}) CHECK(goes_by_it(Collective::broadcast, root, model));
  CHECK(goes_by_it(Collective::all_gather, 0, model));
  // Where the topology is not known, the same times choose something else.
  model.paths = nullptr;
  CHECK_FALSE(goes_by_it(Collective::broadcast, 0, model));
}

TEST_CASE("what a ring is chosen for goes on two channels") {
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    const Algorithm* const ring = algorithm_named("ring");
    const auto calls = simulated_calls(4);
    std::vector<double> times(calls.size(), 10);
    for (std::size_t i = 0; i < calls.size(); ++i)
      if (calls[i].collective == collective && calls[i].algorithm == ring) times[i] = 1;
    const Setting setting = simulated_setting(4, model_of(links_of(4)), times);
    const auto row =
        std::ranges::find_if(setting.table, [&](const TableRow& one) { return one.collective == collective; });
    REQUIRE(row != setting.table.end());
    CHECK(row->algorithm->name == "hierarchical");
  }
}

TEST_CASE("a call that could not be simulated is left out") {
  const auto calls = simulated_calls(4);
  std::vector<double> times(calls.size());
  times[3] = 7;
  const Setting setting = simulated_setting(4, CostModel(), times);
  REQUIRE(setting.curves.size() == 1);
  CHECK(setting.curves[0].algorithm == calls[3].algorithm);
  CHECK(setting.curves[0].points.size() == 1);
  CHECK(simulated_setting(4, CostModel(), std::vector<double>(calls.size())).table.empty());
}

}  // namespace paceline
