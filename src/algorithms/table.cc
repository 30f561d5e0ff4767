#include "algorithms/table.h"

#include <algorithm>
#include <array>

#include "algorithms/algorithms.h"
#include "algorithms/chunks.h"

namespace paceline {
namespace {

using enum Collective;

bool always(const Problem&) { return true; }

template <Collective... which>
constexpr std::array listed{which...};

constexpr bool by_actors = true;

constexpr Algorithm rows[] = {
    {"direct", "Every block goes from the rank that has it straight to the rank that needs it.",
     listed<broadcast, reduce, all_gather, reduce_scatter, gather, scatter, all_to_all>, always, direct::parameters,
     direct::cost, direct::write, !by_actors, direct::gives_only_inputs},
    {"fan_out", "The root's data leaves once, chunk by chunk, for all ranks together.", listed<broadcast>, always,
     fan_out::parameters, fan_out::cost, fan_out::write},
    {"chain", "Each rank forwards the whole message when it has all of it.", listed<broadcast>, always, largest_chunks,
     chain::cost, chain::write},
    {"pipelined_chain", "Each rank forwards one chunk while it receives the next.", listed<broadcast, reduce>, always,
     pipelined_chain::parameters, pipelined_chain::cost, pipelined_chain::write},
    {"knomial", "A tree in which whoever has the data hands it to k-1 others at each level.",
     listed<broadcast, reduce, gather, scatter>, always, knomial::parameters, knomial::cost, knomial::write, !by_actors,
     knomial::gives_only_inputs},
    {"scatter_ring", "The root scatters parts down a tree; the parts go once round a ring.", listed<broadcast>, always,
     largest_chunks, scatter_ring::cost, scatter_ring::write},
    {"scatter_doubling", "The root scatters parts down a tree; ranks at distance 1, 2, 4, ... exchange theirs.",
     listed<broadcast>, scatter_doubling::applies, largest_chunks, scatter_doubling::cost, scatter_doubling::write},
    {"one_shot", "Every rank multicasts its input and folds all inputs in the order of ranks.", listed<all_reduce>,
     always, largest_chunks, one_shot::cost, one_shot::write},
    {"two_shot", "Every rank folds its part of all inputs, then hands on the result.", listed<all_reduce, reduce>,
     always, two_shot::parameters, two_shot::cost, two_shot::write},
    {"ring", "Blocks go once round a ring to be folded, and once to be gathered.",
     listed<all_reduce, all_gather, reduce_scatter>, always, largest_chunks, ring::cost, ring::write},
    {"recursive_doubling", "Ranks at distance 1, 2, 4, ... exchange and fold all they have.", listed<all_reduce>,
     always, recursive_doubling::parameters, recursive_doubling::cost, recursive_doubling::write, by_actors},
    {"rabenseifner", "Recursive halving to scatter and fold, recursive doubling to gather.", listed<all_reduce>, always,
     largest_chunks, rabenseifner::cost, rabenseifner::write, by_actors},
    {"double_tree", "Two trees fold and broadcast one half each; who is a leaf in one is inner in the other.",
     listed<all_reduce>, always, double_tree::parameters, double_tree::cost, double_tree::write},
    {"hierarchical",
     "Inside each node directly, between nodes by two trees, a chain or rings, chunk by chunk side by side.",
     listed<all_reduce, broadcast, all_gather, reduce_scatter>, always, hierarchical::parameters, hierarchical::cost,
     hierarchical::write},
    {"recursive_halving", "Ranks at distance n/2, n/4, ... exchange and fold half of what they have.",
     listed<reduce_scatter>, always, largest_chunks, recursive_halving::cost, recursive_halving::write},
    {"bruck", "Blocks travel in packs over distances 1, 2, 4, ...", listed<all_gather, all_to_all>, always,
     largest_chunks, bruck::cost, bruck::write},
    {"pairwise", "In each round every rank exchanges blocks with one partner.", listed<all_to_all>, always,
     largest_chunks, pairwise::cost, pairwise::write},
    {"dissemination", "Ranks tell those at distance 1, 2, 4, ... whom they have heard of.", listed<barrier>, always,
     largest_chunks, dissemination::cost, dissemination::write},
    {"central", "Every rank tells rank 0, which then tells all.", listed<barrier>, always, largest_chunks,
     central::cost, central::write},
    {"fan", "Every rank tells every other one.", listed<barrier>, always, largest_chunks, fan::cost, fan::write},
};

}  // namespace

double Algorithm::cost(const Problem& problem, const Parameters& parameters, const CostModel& model) const {
  if (problem.ranks > 1) return cost_of_several(problem, parameters, model);
  return model.time(Load{.copied = Sizes(problem, parameters, model).kept});
}

void Algorithm::write(Schedule& schedule) const {
  if (schedule.ranks() > 1) return write_for_several(schedule);
  schedule.move({0, Buffer::input, 0}, {0, Buffer::output, 0}, schedule.problem().count);
}

std::span<const Algorithm> algorithms() { return rows; }

const Algorithm* algorithm_named(std::string_view name) {
  const auto row = std::find_if(std::begin(rows), std::end(rows), [&](const Algorithm& a) { return a.name == name; });
  return row == std::end(rows) ? nullptr : row;
}

bool serves(const Algorithm& algorithm, const Problem& problem) {
  return std::find(algorithm.collectives.begin(), algorithm.collectives.end(), problem.collective) !=
             algorithm.collectives.end() &&
         algorithm.applies(problem);
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
