#include "algorithms/table.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/listed.h"
#include "base/wrong.h"

namespace paceline {

// Each is defined in the file of its algorithm.
Algorithm direct_row();
Algorithm fan_out_row();
Algorithm chain_row();
Algorithm pipelined_chain_row();
Algorithm knomial_row();
Algorithm scatter_ring_row();
Algorithm scatter_doubling_row();
Algorithm one_shot_row();
Algorithm two_shot_row();
Algorithm ring_row();
Algorithm recursive_doubling_row();
Algorithm rabenseifner_row();
Algorithm double_tree_row();
Algorithm hierarchical_row();
Algorithm recursive_halving_row();
Algorithm bruck_row();
Algorithm pairwise_row();
Algorithm dissemination_row();
Algorithm central_row();
Algorithm fan_row();
Algorithm topology_chain_row();
Algorithm packed_trees_row();
Algorithm rings_row();

double Algorithm::cost(const Problem& problem, const Parameters& parameters, const CostModel& model) const {
  if (problem.ranks > 1) return cost_of_several(problem, parameters, model);
  return model.time(Load{.copied = Sizes(problem, parameters, model).kept});
}

void Algorithm::write(Schedule& schedule) const {
  if (schedule.ranks() > 1) return write_for_several(schedule);
  schedule.move({0, Buffer::input, 0}, {0, Buffer::output, 0}, schedule.problem().count);
}

std::span<const Algorithm> algorithms() {
  static const Algorithm rows[] = {
      direct_row(),
      fan_out_row(),
      chain_row(),
      pipelined_chain_row(),
      knomial_row(),
      scatter_ring_row(),
      scatter_doubling_row(),
      one_shot_row(),
      two_shot_row(),
      ring_row(),
      recursive_doubling_row(),
      rabenseifner_row(),
      double_tree_row(),
      hierarchical_row(),
      recursive_halving_row(),
      bruck_row(),
      pairwise_row(),
      dissemination_row(),
      central_row(),
      fan_row(),
      topology_chain_row(),
      packed_trees_row(),
      rings_row(),
  };
  return rows;
}

const Algorithm* algorithm_named(std::string_view name) {
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.name == name) return &algorithm;
  return nullptr;
}

bool serves(const Algorithm& algorithm, const Problem& problem, Paths* paths) {
  if (std::ranges::find(algorithm.collectives, problem.collective) == algorithm.collectives.end()) return false;
  if (problem.ranks == 1) return true;
  return algorithm.applies(problem) &&
         (algorithm.finds == nullptr || (paths != nullptr && algorithm.finds(problem, *paths)));
}

Status check_has_radix(const Algorithm& algorithm) {
  if (algorithm.has_radix) return {};
  std::vector<std::string_view> others;
  for (const Algorithm& other : algorithms())
    if (other.has_radix) others.push_back(other.name);
  return wrong(fmt::format("{} has no radix; there are {}", algorithm.name, listed(others)));
}

int channels_of(const Algorithm& algorithm, Problem problem, const Parameters& parameters) {
  if (parameters.chunk < problem.count) {
    const Problem one{.collective = problem.collective, .ranks = problem.ranks, .root = problem.root, .count = 1};
    const std::size_t blocks =
        std::max({input_elements(one, one.root), output_elements(one, one.root), std::size_t{1}});
    // Two chunks of each rank's part.
    problem.count = std::min(problem.count, 2 * parameters.chunk * static_cast<std::size_t>(problem.ranks) / blocks);
  }
  Schedule schedule(problem, parameters, 0);
  algorithm.write(schedule);
  return schedule.channels();
}

}  // namespace paceline
