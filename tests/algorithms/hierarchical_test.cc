#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "algorithms/table.h"
#include "schedule/proof.h"
#include "schedule/simulator.h"
#include "topology/presets.h"

namespace paceline {
namespace {

const Algorithm& hierarchical() { return *algorithm_named("hierarchical"); }

}  // namespace

TEST_CASE("hierarchical schedules are proved for every size of node") {
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    for (const auto& [n, node_ranks] :
         {std::pair{4, 2}, {6, 3}, {6, 2}, {8, 8}, {12, 4}, {16, 2}, {24, 3}, {32, 8}, {10, 4}, {64, 8}}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{101}, std::size_t{3000}}) {
        for (const bool in_place : {false, true}) {
          for (const bool reordered : {false, true}) {
            INFO(fmt::format("{} of {} on {} ranks, {} a node", name(collective), count, n, node_ranks));
            Parameters parameters{.chunk = count < 1000 ? 3U : 100U, .node_ranks = node_ranks};
            if (reordered) {
              parameters.order.resize(static_cast<std::size_t>(n));
              std::iota(parameters.order.rbegin(), parameters.order.rend(), 0);
            }
            Schedule schedule({collective, n, collective == Collective::broadcast ? n - 2 : 0, count, in_place},
                              parameters);
            hierarchical().write(schedule);
            const Status status = prove(schedule);
            CHECK_MESSAGE(status.ok(), status.message());
          }
        }
      }
    }
  }
}

TEST_CASE("between nodes goes at most what the trees need, an even share a rank") {
  const int n = 32;
  const int g = 8;
  const std::size_t count = 1 << 16;
  Schedule schedule({.collective = Collective::all_reduce, .ranks = n, .count = count, .in_place = true},
                    {.chunk = 64, .node_ranks = g});
  hierarchical().write(schedule);
  for (int rank = 0; rank < n; ++rank) {
    double outside = 0;
    double inside = 0;
    for (const Step& step : schedule.steps(rank)) {
      if (step.action != Action::send) continue;
      for (const int peer : schedule.peers(rank, step))
        (peer / g == rank / g ? inside : outside) += static_cast<double>(step.source.count);
    }
    CHECK(outside <= 2.0 * count / g);
    CHECK(inside == doctest::Approx(2.0 * count * (g - 1) / g));
  }
}

TEST_CASE("the cost formula has the bytes of the schedule") {
  CostModel model;
  model.start = model.step = 0;
  model.element = 1;
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast}) {
    const Problem problem{.collective = collective, .ranks = 24, .count = 1 << 15, .in_place = true};
    const Parameters parameters{.chunk = 4, .node_ranks = 4};
    Schedule schedule(problem, parameters);
    hierarchical().write(schedule);
    double busiest = 0;
    for (int rank = 0; rank < 24; ++rank) {
      Load load;
      for (const Step& step : schedule.steps(rank)) {
        const auto bytes = static_cast<double>(std::max(step.source.count, step.target.count));
        if (step.action == Action::send) load.sent += bytes;
        if (step.action == Action::recv) load.taken += bytes;
        if (step.action == Action::recv_reduce)
          load.folded += bytes * (step.own >= 0 ? step.peer_count : step.peer_count - 1);
      }
      busiest = std::max(busiest, model.time(load));
    }
    CHECK(hierarchical().cost(problem, parameters, model) == doctest::Approx(busiest).epsilon(0.05));
  }
}

TEST_CASE("on a cluster the levels work side by side, and flat trees are slower") {
  const auto cluster = preset("hgx-h200", 4);
  const Topology topology = with_one_nvswitch(*cluster);
  const auto time = [&](std::string_view algorithm, Parameters parameters) {
    Schedule schedule(
        {.collective = Collective::all_reduce, .ranks = 32, .count = std::size_t{1} << 26, .in_place = true},
        parameters);
    algorithm_named(algorithm)->write(schedule);
    WayFinder finder(topology);
    Machine machine;
    machine.ports = Ports::connections;
    machine.multicast = true;
    const auto result = simulate(finder, std::vector{traffic_of(schedule, 4)}, machine);
    REQUIRE(result.ok());
    return result->time;
  };
  const double levels = time("hierarchical", {.chunk = 1 << 14, .node_ranks = 8});
  // A node that is inner in one tree and a leaf in the other takes four halves of M/8 for each rail, through a NIC of
  // 50 GB/s.
  const double busiest = 2.0 * (4 << 26) / 8 / 50e3;
  CHECK(levels >= busiest);
  CHECK(levels <= 1.2 * busiest);
  CHECK(time("double_tree", {.chunk = 1 << 16}) > 2 * levels);
}

}  // namespace paceline
