// Chain broadcast: each rank forwards the whole message when it has all of it.
//
//   root = p0 -> p1 -> ... -> p(n-1)          p: the schedule's order, rotated so that the root comes first
//
// The plain form, to compare the pipelined chain with. Each rank sends M bytes (the last none).
// Time: (n-1)(ts + M/B).
#include "algorithms/algorithms.h"
#include "algorithms/order.h"

namespace paceline::chain {

double cost(const Problem& problem, const Parameters&, const CostModel& model) {
  const double bytes = static_cast<double>(problem.count * model.element);
  return model.step + (problem.ranks - 1) * model.message(bytes);
}

void write(Schedule& schedule) {
  const std::size_t count = schedule.problem().count;
  const auto p = order_from(schedule, schedule.problem().root);
  for (std::size_t i = 0; i + 1 < p.size(); ++i) {
    schedule.move({p[i], i == 0 ? Buffer::input : Buffer::output, 0}, {p[i + 1], Buffer::output, 0}, count);
    schedule.round();
  }
  schedule.move({p[0], Buffer::input, 0}, {p[0], Buffer::output, 0}, count);
}

}  // namespace paceline::chain
