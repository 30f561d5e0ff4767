// The rows that go by a topology, on machines whose links differ: several rings, trees of unlike weights, chains past
// slow links. prove_all_test.cc has them on trees of switches.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "algorithms/table.h"
#include "schedule/proof.h"
#include "topology/part.h"
#include "topology/paths.h"

namespace paceline {
namespace {

std::vector<const Algorithm*> by_topology() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.finds != nullptr) rows.push_back(&algorithm);
  REQUIRE(!rows.empty());
  return rows;
}

std::shared_ptr<Paths> paths_of(std::string_view machine, std::vector<int> gpus) {
  const Topology topology = whole(machine);
  if (gpus.empty()) {
    gpus.resize(topology.gpus().size());
    std::iota(gpus.begin(), gpus.end(), 0);
  }
  return std::make_shared<Paths>(topology, std::move(gpus));
}

struct Machine {
  std::string_view name;
  std::vector<int> gpus;  // of the ranks, in their order; empty: all
  int ranks;
};
const Machine machines[] = {{"dgx1-v100", {}, 8},      {"dgx1-v100", {0, 3, 4}, 3},  {"dgx1-v100", {5, 1, 4, 0}, 4},
                            {"dgx1-v100", {7, 2}, 2},  {"pcie-8gpu-2socket", {}, 8}, {"cs-storm-k80", {}, 16},
                            {"hgx-h200", {0, 2, 4}, 3}};

std::size_t bytes_sent(Schedule& schedule, int rank) {
  std::size_t sent = 0;
  for (const Step& step : schedule.steps(rank))
    if (step.action == Action::send) sent += step.elements() * schedule.peers(rank, step).size();
  return sent;
}

}  // namespace

TEST_CASE("rows that go by a topology are proved on machines whose links differ") {
  int proved = 0;
  for (const Machine& machine : machines) {
    const auto paths = paths_of(machine.name, machine.gpus);
    for (const Algorithm* algorithm : by_topology()) {
      for (const Collective collective : algorithm->collectives) {
        for (const std::size_t count : {1, 7, 1000, 70'000}) {
          for (const bool in_place : {false, true}) {
            const Problem problem{collective, machine.ranks, machine.ranks - 1, count, in_place};
            if (!serves(*algorithm, problem, paths.get())) continue;
            INFO(fmt::format("{} {} on {} of {}, count {}, in place {}", algorithm->name, name(collective),
                             machine.ranks, machine.name, count, in_place));
            for (const std::size_t chunk : {3 + count / 100, std::size_t{1} << 20}) {
              const Parameters parameters{.chunk = chunk, .paths = paths};
              Schedule schedule(problem, parameters);
              algorithm->write(schedule);
              const Status status = prove(schedule);
              CHECK_MESSAGE(status.ok(), status.message());
              for (int rank = 0; rank < machine.ranks; ++rank) {
                Schedule part(problem, parameters, rank);
                algorithm->write(part);
                CHECK(part.steps(rank).size() == schedule.steps(rank).size());
                CHECK(bytes_sent(part, rank) == bytes_sent(schedule, rank));
              }
              ++proved;
            }
          }
        }
      }
    }
  }
  CHECK(proved > 400);
}

TEST_CASE("without a topology they serve no two ranks") {
  for (const Algorithm* algorithm : by_topology()) {
    for (const Collective collective : algorithm->collectives) {
      CHECK_FALSE(serves(*algorithm, {.collective = collective, .ranks = 2}));
      CHECK(serves(*algorithm, {.collective = collective, .ranks = 1}));
    }
  }
}

TEST_CASE("each of several rings carries its share") {
  const auto paths = paths_of("dgx1-v100", {});
  REQUIRE(paths->rings().ok());
  const RingPacking& packing = *paths->rings();
  REQUIRE(packing.rings.size() > 1);
  const Problem problem{Collective::all_gather, 8, 0, 1 << 20, true};
  Schedule schedule(problem, {.chunk = 1 << 16, .paths = paths});
  algorithm_named("rings")->write(schedule);
  // What rank 0 sends to each neighbour is the share of the rings on which that one follows it.
  std::vector<double> shares(8);
  for (const Ring& ring : packing.rings)
    for (std::size_t i = 0; i < 8; ++i)
      if (ring.order[i] == 0)
        shares[static_cast<std::size_t>(ring.order[(i + 1) % 8])] +=
            static_cast<double>(ring.rate) / static_cast<double>(packing.rate);
  std::vector<double> sent(8);
  for (const Step& step : schedule.steps(0))
    if (step.action == Action::send)
      sent[static_cast<std::size_t>(schedule.peers(0, step)[0])] += static_cast<double>(step.elements());
  const double all = 7.0 * (1 << 20);
  for (std::size_t peer = 0; peer < 8; ++peer) CHECK(sent[peer] / all == doctest::Approx(shares[peer]).epsilon(0.001));
}

TEST_CASE("a reduce's chain is searched with the links turned round") {
  const Topology line = uneven_line();
  Paths paths(line, {0, 1, 2});
  const Problem broadcast{Collective::broadcast, 3, 0, 10, false};
  const Problem reduce{Collective::reduce, 3, 0, 10, false};
  for (const Problem& problem : {broadcast, reduce}) {
    const auto& order = paths.chain(problem.root, problem.collective == Collective::reduce);
    REQUIRE(order.ok());
    CHECK(*order == std::vector{0, 1, 2});
  }
  CHECK_FALSE(paths.chain(1).ok());  // GPUs do not relay
  CHECK(paths.chain(1).status().code() == Code::unsupported);
}

TEST_CASE("the cost of packed trees counts the bytes of the busiest rank") {
  const auto paths = paths_of("dgx1-v100", {});
  const Algorithm& algorithm = *algorithm_named("packed_trees");
  CostModel model;
  model.start = model.step = 0;
  model.duplex = 1;
  model.bandwidth = 1;
  model.reduce_bandwidth = model.write_bandwidth = model.copy_bandwidth = CostModel::at_once;
  model.element = 1;
  for (const Collective collective : {Collective::broadcast, Collective::all_gather}) {
    const Problem problem{collective, 8, 0, 800'000, true};
    const Parameters parameters{.chunk = 10'000, .paths = paths};
    Schedule schedule(problem, parameters);
    algorithm.write(schedule);
    double busiest = 0;
    for (int rank = 0; rank < 8; ++rank) {
      std::size_t taken = 0;
      for (const Step& step : schedule.steps(rank)) taken += step.action == Action::recv ? step.elements() : 0;
      busiest = std::max({busiest, static_cast<double>(bytes_sent(schedule, rank)), static_cast<double>(taken)});
    }
    CHECK(algorithm.cost(problem, parameters, model) == doctest::Approx(busiest).epsilon(0.02));
  }
}

}  // namespace paceline
