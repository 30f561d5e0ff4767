// Broadcast by scatter and ring all-gather.
//
// Part v of the message goes to position v down a binary tree; then all parts go once round the ring. The root needs
// none of them back, and a rank that got more than its part in the scatter is not sent it again. Long messages are
// treated in slices of 2n chunks: two on each link, so that one comes while the other goes.
//
// The root sends 2 M (n-1)/n bytes and no other rank more.   Time: (ceil(log2 n) + n-1) ts + 2 (n-1)/n M/B.
// Source: Barnett et al., "Interprocessor collective communication library", SHPCC 1994.
#include "algorithms/algorithms.h"
#include "algorithms/binomial_scatter.h"
#include "algorithms/chunks.h"
#include "algorithms/order.h"

namespace paceline::scatter_ring {

double cost(const Problem& problem, const Parameters&, const CostModel& model) {
  const int n = problem.ranks;
  const double bytes = static_cast<double>(problem.count * model.element);
  int depth = 0;
  while (1 << depth < n) ++depth;
  return model.step + (depth + n - 1) * model.message(0) + model.stream(2.0 * (n - 1) / n * bytes, 0);
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const int n = problem.ranks;
  const auto p = order_from(schedule, problem.root);
  for (const Part part : slices(problem.count, n, 2 * std::min(schedule.parameters().chunk, problem.count))) {
    const ScatteredSlice slice(p, part);
    slice.scatter(schedule);
    slice.keep(schedule);
    for (int step = 0; step < n - 1; ++step) {
      for (int v = 0; v + 1 < n; ++v) {
        const int forwarded = (v - step + n) % n;
        if (!slice.has(v + 1, forwarded)) slice.move(schedule, v, v + 1, forwarded, forwarded + 1);
      }
      schedule.round();
    }
  }
}

}  // namespace paceline::scatter_ring
