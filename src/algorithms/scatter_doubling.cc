// Broadcast by scatter and recursive-doubling all-gather, for n a power of two.
//
// Part v of the message goes to position v down a binary tree; then positions at distance 1, 2, 4, ... exchange all
// parts that they have. What a rank has from the scatter is not sent again. Slices of 2n chunks, as in scatter_ring.
//
// The root sends 2 M (n-1)/n bytes and no other rank more.   Time: 2 log2 n ts + 2 (n-1)/n M/B.
// Source: van de Geijn, 1994; Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
#include <bit>

#include "algorithms/algorithms.h"
#include "algorithms/binomial_scatter.h"
#include "algorithms/chunks.h"
#include "algorithms/order.h"

namespace paceline::scatter_doubling {

bool applies(const Problem& problem) { return std::has_single_bit(static_cast<unsigned>(problem.ranks)); }

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const int n = problem.ranks;
  const Sizes m(problem, parameters, model, n);
  const double depth = std::countr_zero(static_cast<unsigned>(n));
  if (m.others == 0) return model.time(Load{.copied = m.kept});
  const Load root{.steps = 2 * m.others * m.chunks, .sent = 2 * m.others * m.part, .copied = m.kept};
  const Load other{.steps = 2 * n * m.chunks, .sent = (n - 2) * m.part, .taken = m.bytes};
  const double waits = 2 * depth * std::ceil(m.chunks / 2);
  return model.time(Work{
      .hops = waits,
      .turns = waits,
      .fill = {},
      .busiest = model.busier(root, other),
      .mean = 1.0 / n *
              (Load{.copied = m.kept} + m.others * Load{.steps = other.steps, .sent = m.bytes, .taken = m.bytes})});
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const int n = problem.ranks;
  const auto p = order_from(schedule, problem.root);
  for (const Part part : slices(problem.count, n, 2 * std::min(schedule.parameters().chunk, problem.count))) {
    const ScatteredSlice slice(p, part);
    slice.scatter(schedule);
    slice.keep(schedule);
    for (int distance = 1; distance < n; distance *= 2) {
      for (int v = 0; v < n; ++v) {
        const int first = v & -distance;  // of the parts that v has
        if (!slice.has(v ^ distance, first)) slice.move(schedule, v, v ^ distance, first, first + distance);
      }
      schedule.round();
    }
  }
}

}  // namespace paceline::scatter_doubling
