// One-shot all-reduce: every rank multicasts its whole input, and every rank folds all n inputs in the order of ranks.
//
// One dependent step, so the fastest for short messages. Each rank sends M bytes, receives and folds (n-1) M.
// Time: ts + M/B + (n-1) M/R.
#include "algorithms/algorithms.h"
#include "algorithms/order.h"

namespace paceline::one_shot {

double cost(const Problem& problem, const Parameters&, const CostModel& model) {
  const int others = problem.ranks - 1;
  if (others == 0) return model.step;
  const double bytes = static_cast<double>(problem.count * model.element);
  return model.multicast(bytes, others) + model.stream(0, others) +
         others * bytes * model.sharing / model.reduce_bandwidth;
}

void write(Schedule& schedule) {
  schedule.reduce(on_every_rank(schedule, Buffer::input), on_every_rank(schedule, Buffer::output),
                  schedule.problem().count);
}

}  // namespace paceline::one_shot
