// The parts of the hierarchical algorithm: one file for each kind of collective.
#pragma once

#include "schedule/cost.h"
#include "schedule/schedule.h"

namespace paceline::hierarchical {

// Ranks on nodes, in the schedule's order: those of node 0, of node 1, ...
struct Layout {
  Layout(const Problem& problem, int node_ranks)
      : ranks(problem.ranks % node_ranks == 0 ? node_ranks : 1), nodes(problem.ranks / ranks) {}

  [[nodiscard]] int rank(const Schedule& schedule, int node, int local) const {
    return schedule.in_order(node * ranks + local);
  }

  int ranks;  // of a node
  int nodes;
};

double all_reduce_cost(const Problem& problem, const Parameters& parameters, const CostModel& model,
                       const Layout& layout);
void all_reduce(Schedule& schedule, const Layout& layout);

double broadcast_cost(const Problem& problem, const Parameters& parameters, const CostModel& model,
                      const Layout& layout);
void broadcast(Schedule& schedule, const Layout& layout);

double all_gather_cost(const Problem& problem, const Parameters& parameters, const CostModel& model,
                       const Layout& layout);
void all_gather(Schedule& schedule, const Layout& layout);

double reduce_scatter_cost(const Problem& problem, const Parameters& parameters, const CostModel& model,
                           const Layout& layout);
void reduce_scatter(Schedule& schedule, const Layout& layout);

}  // namespace paceline::hierarchical
