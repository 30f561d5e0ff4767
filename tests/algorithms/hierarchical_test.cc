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

// us, of elements of 4 bytes, where messages to several ranks are multicast.
double simulated_time(const Topology& topology, const Problem& problem, std::string_view algorithm,
                      const Parameters& parameters) {
  Schedule schedule(problem, parameters);
  algorithm_named(algorithm)->write(schedule);
  WayFinder finder(topology);
  Machine machine;
  machine.ports = Ports::connections;
  machine.multicast = true;
  const auto result = simulate(finder, std::vector{traffic_of(schedule, 4)}, machine);
  REQUIRE(result.ok());
  return result->time;
}

}  // namespace

TEST_CASE("hierarchical schedules are proved for 1 to 64 ranks and every size of node") {
  for (const Collective collective : hierarchical().collectives) {
    for (int n = 1; n <= 64; ++n) {
      for (int node_ranks = 1; node_ranks <= n; ++node_ranks) {
        if (n % node_ranks != 0) continue;
        const bool small = n <= 12;
        for (const std::size_t count :
             small ? std::vector<std::size_t>{1, 7, 101, 3000} : std::vector<std::size_t>{5}) {
          for (const bool in_place : {false, true}) {
            const bool reordered = in_place == (node_ranks % 2 == 0);
            INFO(fmt::format("{} of {} on {} ranks, {} a node", name(collective), count, n, node_ranks));
            Parameters parameters{.chunk = count < 1000 ? 3U : 100U, .node_ranks = node_ranks};
            if (reordered) {
              parameters.order.resize(static_cast<std::size_t>(n));
              std::iota(parameters.order.rbegin(), parameters.order.rend(), 0);
            }
            Schedule schedule({collective, n, collective == Collective::broadcast ? n * 2 / 3 : 0, count, in_place},
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

// Elements that a rank sends to its own node and to others.
std::pair<double, double> sent_inside_and_out(Schedule& schedule, int rank) {
  const int g = schedule.parameters().node_ranks;
  std::pair<double, double> sent;
  for (const Step& step : schedule.steps(rank))
    if (step.action == Action::send)
      for (const int peer : schedule.peers(rank, step))
        (peer / g == rank / g ? sent.first : sent.second) += static_cast<double>(step.source.count);
  return sent;
}

TEST_CASE("between nodes goes at most what the trees need, an even share a rank") {
  const int n = 32;
  const int g = 8;
  const std::size_t count = 1 << 16;
  Schedule schedule({.collective = Collective::all_reduce, .ranks = n, .count = count, .in_place = true},
                    {.chunk = 64, .node_ranks = g});
  hierarchical().write(schedule);
  for (int rank = 0; rank < n; ++rank) {
    const auto [inside, outside] = sent_inside_and_out(schedule, rank);
    CHECK(outside <= 2.0 * count / g);
    CHECK(inside == doctest::Approx(2.0 * count * (g - 1) / g));
  }
}

TEST_CASE("of gathered and scattered blocks none passes a cable that does not have to") {
  const int nodes = 4;
  const int g = 6;
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    INFO(std::string(name(collective)));
    Schedule schedule({.collective = collective, .ranks = nodes * g, .count = 1000, .in_place = true},
                      {.chunk = 64, .node_ranks = g});
    hierarchical().write(schedule);
    for (int rank = 0; rank < nodes * g; ++rank) {
      const auto [inside, outside] = sent_inside_and_out(schedule, rank);
      CHECK(outside == 1000.0 * (nodes - 1));
      CHECK(inside == 1000.0 * nodes * (g - 1));
    }
  }
}

TEST_CASE("the cost formula has the bytes of the schedule") {
  CostModel model;
  model.start = model.step = model.partner = model.receiver = 0;
  model.passing_share = 1;
  model.common_share = 0;
  model.element = 1;
  for (const Collective collective : hierarchical().collectives) {
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
        if (step.action == Action::recv_reduce) load.written += bytes;
      }
      busiest = std::max(busiest, model.time(load));
    }
    CHECK(hierarchical().cost(problem, parameters, model) == doctest::Approx(busiest).epsilon(0.05));
  }
}

TEST_CASE("on a cluster the levels work side by side, and flat trees are slower") {
  const auto cluster = preset("hgx-h200", 4);
  const Topology topology = with_one_nvswitch(*cluster);
  const Problem problem{
      .collective = Collective::all_reduce, .ranks = 32, .count = std::size_t{1} << 26, .in_place = true};
  const auto time = [&](std::string_view algorithm, const Parameters& parameters) {
    return simulated_time(topology, problem, algorithm, parameters);
  };
  const double levels = time("hierarchical", {.chunk = 1 << 14, .node_ranks = 8});
  // A node that is inner in one tree and a leaf in the other takes four halves of M/8 for each rail, through a NIC of
  // 50 GB/s.
  const double busiest = 2.0 * (4 << 26) / 8 / 50e3;
  CHECK(levels >= busiest);
  CHECK(levels <= 1.2 * busiest);
  CHECK(time("double_tree", {.chunk = 1 << 16}) > 2 * levels);
}

TEST_CASE("on a cluster blocks go at the rate of all cables, which rings of ranks do not") {
  const auto cluster = preset("hgx-h200", 4);
  const Topology topology = with_one_nvswitch(*cluster);
  const std::size_t count = std::size_t{1} << 21;
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter}) {
    INFO(std::string(name(collective)));
    const Problem problem{.collective = collective, .ranks = 32, .count = count, .in_place = true};
    const auto time = [&](std::string_view algorithm, const Parameters& parameters) {
      return simulated_time(topology, problem, algorithm, parameters);
    };
    const double levels = time("hierarchical", {.chunk = 1 << 16, .node_ranks = 8});
    // Three blocks through each rank's own NIC, and four from seven others over NVLink, side by side.
    const double cable = 4.0 * count * 3 / 50e3;
    const double inside = 4.0 * count * 4 * 7 / 450e3;
    CHECK(levels >= std::max(cable, inside));
    CHECK(levels <= 1.45 * std::max(cable, inside));
    CHECK(time("ring", {.chunk = 1 << 16}) > 2 * levels);
  }
}

}  // namespace paceline
