// Broadcast by scatter and recursive-doubling all-gather, for n a power of two.
//
// Part v of the message goes to position v down a binary tree; then positions at distance 1, 2, 4, ... exchange all
// parts that they have. What a rank has from the scatter is not sent again.
//
// The root sends 2 M (n-1)/n bytes and no other rank more.   Time: 2 log2 n ts + 2 (n-1)/n M/B.
// Source: van de Geijn, 1994; Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
#include <bit>

#include "algorithms/binomial_scatter.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

bool applies(const Problem& problem) { return std::has_single_bit(static_cast<unsigned>(problem.ranks)); }

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const int n = problem.ranks;
  const int depth = std::countr_zero(static_cast<unsigned>(n));
  return scatter_and_gather_time(problem, parameters, model, 2 * depth, 2 * model.levels_inside(n), n - 2,
                                 model.to_all_others(1, n));
}

void write(Schedule& schedule) {
  const int n = schedule.problem().ranks;
  scatter_and_gather(schedule, [&](const ScatteredSlice& slice) {
    for (int distance = 1; distance < n; distance *= 2) {
      for (int v = 0; v < n; ++v) {
        const int first = v & -distance;  // of the parts that v has
        if (!slice.has(v ^ distance, first)) slice.move(schedule, v, v ^ distance, first, first + distance);
      }
      schedule.round();
    }
  });
}

}  // namespace

Algorithm scatter_doubling_row() {
  using enum Collective;
  return {
      .name = "scatter_doubling",
      .sentence = "The root scatters parts down a tree; ranks at distance 1, 2, 4, ... exchange theirs.",
      .collectives = these<broadcast>,
      .applies = applies,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
