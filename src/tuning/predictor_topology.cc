#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "algorithms/chunks.h"
#include "algorithms/packed_trees.h"
#include "topology/arborescences.h"
#include "topology/rings.h"
#include "tuning/predictor.h"
#include "tuning/topology_costs.h"
#include "tuning/tree_predictions.h"

namespace paceline {
namespace {

// Searches of orders and trees on more GPUs take too long.
constexpr std::size_t most_for_orders = 256;
constexpr std::size_t most_for_trees = 32;

}  // namespace

Status Predictor::add_chain(const Problem& problem) {
  const Algorithm& algorithm = *algorithm_named("pipelined_chain");
  if (question_.gpus.size() > most_for_orders) {
    leave_out("topology_chain", fmt::format("no order is searched for {} ranks", ranks()));
    return {};
  }
  if (!chain_) chain_ = least_loaded_chain(topology_, question_.gpus, question_.gpus[at(question_.root)]);
  const Result<Chain>& chain = *chain_;
  if (!chain.ok()) return unless_unsupported("topology_chain", chain.status());
  std::vector<int> order;
  std::vector<int> gpus;
  for (const int gpu : chain->order) {
    const auto rank = std::find(question_.gpus.begin(), question_.gpus.end(), gpu) - question_.gpus.begin();
    order.push_back(static_cast<int>(rank));
    gpus.push_back(gpu);
  }
  const CostModel model = cost_model_of(finder_, gpus, question_.machine, question_.element_bytes);
  Parameters parameters = algorithm.parameters(problem, model);
  parameters.order = std::move(order);
  return add_row(algorithm, "topology_chain", problem, std::move(parameters));
}

// The ranks' part of the topology; none, and a sentence that says so, if it is too large to pack trees or rings in it.
Result<std::optional<Topology>> Predictor::small_part(std::string_view name) {
  std::optional<Topology> part;
  if (question_.gpus.size() > most_for_trees) {
    leave_out(name, fmt::format("none are packed for {} ranks", ranks()));
    return part;
  }
  auto selected = select(topology_, question_.gpus);
  PACE_TRY(selected.status());
  const std::size_t vertices = selected->vertices().size();
  if (vertices <= most_vertices_for_trees)
    part = std::move(*selected);
  else
    leave_out(name, fmt::format("none are packed in a graph of {} GPUs, CPUs, switches and NICs", vertices));
  return part;
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
  const auto small = small_part("packed_trees");
  PACE_TRY(small.status());
  const std::optional<Topology>& part = *small;
  if (!part) return {};
  const auto packings = trees_of(problem, *part);
  if (!packings.ok()) {
    leave_out("packed_trees", packings.status().message());
    return {};
  }
  WayFinder of_part(*part);
  give_ways(*packings, *part, of_part);
  WayFinder finder = in_whole(of_part);
  // Of 1 GB in 2048 chunks, filling the trees takes 1%.
  const std::size_t all = problem.count * (parts_count(problem.collective) ? at(ranks()) : 1);
  const std::size_t trees = packings->front().trees.size();
  const std::size_t longest = pipeline_chunk(all / std::max<std::size_t>(1, trees), ranks(), model_);
  const std::size_t chunk = asked_chunk().value_or(std::max(all / 2048, longest));
  // Each chunk is sent and received on each edge of its tree, once in each pass.
  const auto steps_with = [&](std::size_t length) {
    const double chunks = std::ceil(static_cast<double>(all) / static_cast<double>(length));
    return 2.0 * (ranks() - 1) * chunks * static_cast<double>(packings->size());
  };
  if (steps_with(chunk) > most_steps) return leave_out("packed_trees", too_many(steps_with(chunk))), Status();
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
  note(topology_, std::move(fastest), std::move(best), problem, "packed_trees", true);
  return {};
}

Status Predictor::add_rings(const Problem& problem) {
  const Algorithm& algorithm = *algorithm_named("ring");
  const auto small = small_part("rings");
  PACE_TRY(small.status());
  const std::optional<Topology>& part = *small;
  if (!part) return {};
  const RingPacking packing = pack_rings(*part);
  if (packing.rings.empty()) {
    leave_out("rings",
              packing.exact ? "no ring passes all of these GPUs" : "no ring was found before the search was given up");
    return {};
  }
  WayFinder of_part(*part);
  WayFinder finder = in_whole(of_part);
  std::vector<Traffic> traffic;
  Flow before = 0;
  std::size_t begun = 0;
  Parameters parameters = algorithm.parameters(problem, model_);
  parameters.chunk = asked_chunk().value_or(parameters.chunk);
  const double steps = steps_of(algorithm, problem, parameters, model_);
  if (steps > most_steps) return leave_out("rings", too_many(steps)), Status();
  for (const Ring& ring : packing.rings) {
    before += ring.rate;
    const auto end = static_cast<std::size_t>(static_cast<double>(problem.count) * static_cast<double>(before) /
                                              static_cast<double>(packing.rate));
    Problem share = problem;
    share.count = std::min(end, problem.count) - begun;
    begun += share.count;
    parameters.order = ring.order;
    Schedule schedule(share, parameters);
    algorithm.write(schedule);
    traffic.push_back(traffic_of(schedule, question_.element_bytes, question_.gpus));
  }
  return run(finder, std::move(traffic), problem, "rings");
}

}  // namespace paceline
