// Broadcast by scatter and ring all-gather.
//
// Part v of the message goes to position v down a binary tree; then all parts go once round the ring. The root needs
// none of them back, and a rank that got more than its part in the scatter is not sent it again.
//
// The root sends 2 M (n-1)/n bytes and no other rank more.   Time: (ceil(log2 n) + n-1) ts + 2 (n-1)/n M/B.
// Source: Barnett et al., "Interprocessor collective communication library", SHPCC 1994.
#include <bit>

#include "algorithms/binomial_scatter.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const int n = problem.ranks;
  const int depth = std::bit_width(static_cast<unsigned>(n - 1));
  // The busiest has the largest subtree in the scatter, beside its n-1 parts in the ring.
  const int width = static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1)));
  const int sent = n < 3 ? 0 : n - 1 + std::min(width, n - width) - 1;
  // The first rank of a node gets from the ring what it has not from the scatter: of both together all parts.
  const int over_cable = n - std::min(model.node_ranks & -model.node_ranks, n - model.node_ranks);
  return scatter_and_gather_time(problem, parameters, model, depth + n - 1,
                                 model.levels_inside(n) + model.hops_inside(n - 1), sent,
                                 {static_cast<double>(over_cable), static_cast<double>(model.node_ranks)});
}

void write(Schedule& schedule) {
  const int n = schedule.problem().ranks;
  scatter_and_gather(schedule, [&](const ScatteredSlice& slice) {
    for (int step = 0; step < n - 1; ++step) {
      for (int v = 0; v + 1 < n; ++v) {
        const int forwarded = (v - step + n) % n;
        if (!slice.has(v + 1, forwarded)) slice.move(schedule, v, v + 1, forwarded, forwarded + 1);
      }
      schedule.round();
    }
  });
}

}  // namespace

Algorithm scatter_ring_row() {
  using enum Collective;
  return {
      .name = "scatter_ring",
      .sentence = "The root scatters parts down a tree; the parts go once round a ring.",
      .collectives = these<broadcast>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
