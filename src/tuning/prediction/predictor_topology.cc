#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "algorithms/packed_trees.h"
#include "tuning/prediction/predictor.h"
#include "tuning/prediction/topology_costs.h"
#include "tuning/prediction/tree_predictions.h"

namespace paceline {
namespace {

// Which timing and chunk suit packings best is seen by trying.
class TreeTrials {
 public:
  // bound: us, at which the trees carry the data. The problem, the question and the packings must outlive it.
  TreeTrials(const Problem& problem, const Question& question, std::span<const TreePacking> packings, WayFinder finder,
             double bound)
      : problem_(problem), question_(question), packings_(packings), finder_(std::move(finder)), bound_(bound) {
    fastest.time = std::numeric_limits<double>::infinity();
  }

  // One is as good as at the bound, or it takes too long.
  [[nodiscard]] bool enough() const { return fastest.time <= 1.015 * bound_ || messages_ > most_steps; }

  // us, in chunks of at most so many elements.
  Result<double> time_of(const TreeTiming& timing, std::size_t chunk) {
    Schedule schedule(problem_, {.chunk = chunk});
    PACE_TRY(write_packed_trees(schedule, packings_, timing));
    std::vector<Traffic> of_this;
    of_this.push_back(traffic_of(schedule, question_.element_bytes, question_.gpus));
    auto tried = simulate(finder_, of_this, question_.machine, question_.in_detail);
    PACE_TRY(tried.status());
    messages_ += static_cast<double>(tried->messages);
    const double time = tried->time;
    if (time < fastest.time) {
      traffic = std::move(of_this);
      fastest = std::move(*tried);
    }
    return time;
  }

  std::vector<Traffic> traffic;  // of the fastest
  Simulation fastest;

 private:
  const Problem& problem_;
  const Question& question_;
  std::span<const TreePacking> packings_;
  WayFinder finder_;
  double bound_;
  double messages_ = 0;
};

}  // namespace

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
  const double roots = problem.collective == Collective::broadcast ? 1 : ranks();
  TreeTrials trials(problem, question_, *packings, std::move(finder),
                    bound_of(*packings, static_cast<double>(all * question_.element_bytes) / roots));
  std::map<TreeChannels, std::map<double, TreeTiming>> best;  // some of each kind, by time
  for (const TreeTiming& timing : tree_timings(problem.collective)) {
    const auto time = trials.time_of(timing, chunk);
    PACE_TRY(time.status());
    auto& by_time = best[timing.channels];
    by_time.emplace(*time, timing);
    if (by_time.size() > 3) by_time.erase(std::prev(by_time.end()));
    if (trials.enough()) break;
  }
  // Longer chunks save starts, shorter ones fill deep trees sooner: which suit depends on how channels are used.
  for (const double factor : {2.0, 0.5, 0.7, 0.25, 4.0, 0.125}) {
    const auto length = static_cast<std::size_t>(factor * static_cast<double>(chunk));
    if (asked_chunk() || length < 1024 || steps_with(length) > most_steps) continue;
    for (const auto& [channels, by_time] : best)
      for (const auto& [time, timing] : by_time)
        if (!trials.enough()) PACE_TRY(trials.time_of(timing, length).status());
  }
  note(topology_, std::move(trials.fastest), std::move(trials.traffic), problem, algorithm.name, true);
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
