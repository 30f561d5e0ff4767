// Hierarchical: inside nodes over their fast links, between nodes with as little as must go there, all of it one
// pipeline.
//
//   all_reduce                    folds inside, two trees between        hierarchical_all_reduce.cc
//   broadcast                     chains of chains                       hierarchical_broadcast.cc
//   all_gather, reduce_scatter    direct inside, rings between           hierarchical_blocks.cc
//
// Nodes are those of Parameters::node_ranks, in the schedule's order. Each of the files has the steps, the bytes and
// the time of its collectives.
#include "algorithms/hierarchical.h"

#include "algorithms/chunks.h"
#include "algorithms/double_tree.h"
#include "algorithms/table.h"

namespace paceline::hierarchical {
namespace {

Parameters parameters(const Problem& problem, const CostModel& model) {
  const Layout layout(problem, std::max(1, model.node_ranks));
  const bool in_levels = layout.ranks > 1;
  CostModel rail = model;  // the ranks of a node take an equal share of its cable
  rail.cable = std::min(rail.cable / layout.ranks, rail.stream);
  Parameters parameters{.node_ranks = layout.ranks};
  switch (problem.collective) {
    case Collective::broadcast:
      parameters.chunk = pipeline_chunk(problem.count, layout.nodes + layout.ranks - 2, model);
      break;
    case Collective::all_reduce:
      parameters.chunk = pipeline_chunk(problem.count / (2 * static_cast<std::size_t>(layout.ranks)),
                                        2 * tree_of_two(0, layout.nodes).height + (in_levels ? 2 : 0), rail);
      break;
    default: parameters.chunk = pipeline_chunk(problem.count, in_levels ? 2 : 1, rail);
  }
  return parameters;
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Layout layout(problem, parameters.node_ranks);
  switch (problem.collective) {
    case Collective::broadcast: return broadcast_cost(problem, parameters, model, layout);
    case Collective::all_reduce: return all_reduce_cost(problem, parameters, model, layout);
    case Collective::all_gather: return all_gather_cost(problem, parameters, model, layout);
    default: return reduce_scatter_cost(problem, parameters, model, layout);
  }
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  if (problem.count == 0) return;
  const Layout layout(problem, schedule.parameters().node_ranks);
  switch (problem.collective) {
    case Collective::broadcast: return broadcast(schedule, layout);
    case Collective::all_reduce: return all_reduce(schedule, layout);
    case Collective::all_gather: return all_gather(schedule, layout);
    default: return reduce_scatter(schedule, layout);
  }
}

}  // namespace
}  // namespace paceline::hierarchical

namespace paceline {

Algorithm hierarchical_row() {
  using enum Collective;
  return {
      .name = "hierarchical",
      .sentence =
          "Inside each node directly, between nodes by two trees, a chain or rings, chunk by chunk side by side.",
      .collectives = these<all_reduce, broadcast, all_gather, reduce_scatter>,
      .parameters = hierarchical::parameters,
      .cost_of_several = hierarchical::cost,
      .write_for_several = hierarchical::write,
      .measured = true,
  };
}

}  // namespace paceline
