#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "algorithms/packed_trees.h"
#include "tuning/predictor.h"
#include "tuning/topology_costs.h"
#include "tuning/tree_predictions.h"

namespace paceline {
Status Predictor::add_chain(const Problem& problem) {
  const auto& order = model_.paths->chain(question_.root, problem.collective == Collective::reduce);
  if (!order.ok()) return unless_unsupported("topology_chain", order.status());
  std::vector<int> gpus;
  for (const int rank : *order) gpus.push_back(question_.gpus[at(rank)]);
  const Algorithm& algorithm = *algorithm_named("topology_chain");
  Parameters parameters =
      algorithm.parameters(problem, cost_model_of(finder_, gpus, question_.machine, question_.element_bytes));
  parameters.paths = model_.paths;
  return add_row(algorithm, algorithm.name, problem, std::move(parameters));
}

// The same ways in the whole topology: what is simulated there has GPUs and links by the numbers that stragglers have.
WayFinder Predictor::in_whole(WayFinder& of_part) const {
  const std::vector<int> numbers = links_in_whole(of_part.topology(), topology_);
  WayFinder finder(topology_);
  for (int from = 0; from < ranks(); ++from) {
    for (int to = 0; to < ranks(); ++to) {
      std::vector<WayPart> ways = of_part.between(from, to);
      for (WayPart& way : ways)
        for (int& link : way.links) link = numbers[at(link)];
      finder.set(question_.gpus[at(from)], question_.gpus[at(to)], std::move(ways));
    }
  }
  return finder;
}

Status Predictor::add_trees(const Problem& problem) {
  const Algorithm& algorithm = *algorithm_named("packed_trees");
  const auto& packings = model_.paths->trees(problem.collective, question_.root);
  if (!packings.ok()) return leave_out(algorithm.name, packings.status().message()), Status();
  WayFinder of_part(*model_.paths->part());
  give_ways(*packings, of_part.topology(), of_part);
  WayFinder finder = in_whole(of_part);
  const std::size_t all = problem.count * (parts_count(problem.collective) ? at(ranks()) : 1);
  const std::size_t chunk = asked_chunk().value_or(algorithm.parameters(problem, model_).chunk);
  // Each chunk is sent and received on each edge of its tree, once in each pass.
  const auto steps_with = [&](std::size_t length) {
    const double chunks = std::ceil(static_cast<double>(all) / static_cast<double>(length));
    return 2.0 * (ranks() - 1) * chunks * static_cast<double>(packings->size());
  };
  if (steps_with(chunk) > most_steps) return leave_out(algorithm.name, too_many(steps_with(chunk))), Status();
  // Which timing and chunk suit the packings best is seen by trying, until one is as good as at the bound or it takes
  // too long.
  const double roots = problem.collective == Collective::broadcast ? 1 : ranks();
  const double bound = bound_of(*packings, static_cast<double>(all * question_.element_bytes) / roots);
  std::vector<Traffic> best;
  double messages = 0;
  Simulation fastest;
  fastest.time = std::numeric_limits<double>::infinity();
  const auto is_done = [&] { return fastest.time <= 1.015 * bound || messages > most_steps; };
  const auto is_faster = [&](const TreeTiming& timing, std::size_t length) -> Result<bool> {
    Schedule schedule(problem, {.chunk = length});
    PACE_TRY(write_packed_trees(schedule, *packings, timing));
    std::vector<Traffic> traffic;
    traffic.push_back(traffic_of(schedule, question_.element_bytes, question_.gpus));
    auto tried = simulate(finder, traffic, question_.machine, question_.in_detail);
    PACE_TRY(tried.status());
    messages += static_cast<double>(tried->messages);
    if (tried->time >= fastest.time) return false;
    best = std::move(traffic);
    fastest = std::move(*tried);
    return true;
  };
  TreeTiming suits;
  for (const TreeTiming& timing : tree_timings(problem.collective)) {
    const auto faster = is_faster(timing, chunk);
    PACE_TRY(faster.status());
    if (*faster) suits = timing;
    if (is_done()) break;
  }
  // Longer chunks save starts, shorter ones fill deep trees sooner.
  for (const double factor : {2.0, 0.5}) {
    auto length = static_cast<double>(chunk);
    for (bool better = !asked_chunk(); better && !is_done();) {
      length *= factor;
      if (length < 1024 || steps_with(static_cast<std::size_t>(length)) > most_steps) break;
      const auto faster = is_faster(suits, static_cast<std::size_t>(length));
      PACE_TRY(faster.status());
      better = *faster;
    }
  }
  note(topology_, std::move(fastest), std::move(best), problem, algorithm.name, true);
  return {};
}

Status Predictor::add_rings(const Problem& problem) {
  const Algorithm& algorithm = *algorithm_named("rings");
  if (const auto& rings = model_.paths->rings(); !rings.ok()) return unless_unsupported(algorithm.name, rings.status());
  WayFinder of_part(*model_.paths->part());
  WayFinder finder = in_whole(of_part);
  Parameters parameters = algorithm.parameters(problem, model_);
  parameters.chunk = asked_chunk().value_or(parameters.chunk);
  parameters.paths = model_.paths;
  const double steps = steps_of(algorithm, problem, parameters, model_);
  if (steps > most_steps) return leave_out(algorithm.name, too_many(steps)), Status();
  Schedule schedule(problem, parameters);
  algorithm.write(schedule);
  std::vector<Traffic> traffic;
  traffic.push_back(traffic_of(schedule, question_.element_bytes, question_.gpus));
  return run(finder, std::move(traffic), problem, algorithm.name);
}

}  // namespace paceline
