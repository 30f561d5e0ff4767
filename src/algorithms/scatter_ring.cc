// Broadcast by scatter and ring all-gather.
//
// Part v of the message goes to position v down a binary tree; then all parts go once round the ring. The root needs
// none of them back, and a rank that got more than its part in the scatter is not sent it again. Long messages are
// treated in slices of 2n chunks: two on each link, so that one comes while the other goes.
//
// The root sends 2 M (n-1)/n bytes and no other rank more.   Time: (ceil(log2 n) + n-1) ts + 2 (n-1)/n M/B.
// Source: Barnett et al., "Interprocessor collective communication library", SHPCC 1994.
#include <bit>

#include "algorithms/algorithms.h"
#include "algorithms/binomial_scatter.h"
#include "algorithms/chunks.h"
#include "algorithms/order.h"

namespace paceline::scatter_ring {

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const int n = problem.ranks;
  const Sizes m(problem, parameters, model, n);
  const double depth = std::bit_width(static_cast<unsigned>(n - 1));
  if (m.others == 0) return model.time(Load{.copied = m.kept});
  const Load root{.steps = 2 * m.others * m.chunks, .sent = 2 * m.others * m.part, .copied = m.kept};
  // The one with the largest subtree in the scatter, beside its n-1 parts in the ring.
  const int width = static_cast<int>(std::bit_floor(static_cast<unsigned>(m.others)));
  const double sent = n < 3 ? 0 : m.others + std::min(width, n - width) - 1;
  const Load other{.steps = 2 * n * m.chunks, .sent = sent * m.part, .taken = m.bytes};
  const double waits = (depth + m.others) * std::ceil(m.chunks / 2);
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
