// Fan-out broadcast: the root's data leaves once, chunk by chunk, for all ranks together.
//
// In shared memory the root writes a chunk where all others read it while it writes the next: two hops, whatever n is.
// The root sends M bytes (n-1 times M where the transport has no multicast), the others none.
// Time: (M/C + 1)(ts + C/B).
#include "algorithms/algorithms.h"
#include "algorithms/chunks.h"
#include "algorithms/order.h"

namespace paceline::fan_out {

Parameters parameters(const Problem& problem, const CostModel& model) {
  return {.chunk = pipeline_chunk(problem.count, 2, model)};
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  if (problem.ranks == 1) return model.step;
  const double bytes = static_cast<double>(problem.count * model.element);
  const double chunk = static_cast<double>(std::min(parameters.chunk, problem.count) * model.element);
  return model.pipeline(bytes, chunk, 2) - model.message(0) +
         (problem.ranks - 2) * model.multicast_share * model.stream(bytes, std::max(1.0, bytes / std::max(chunk, 1.0)));
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  schedule.multicast({problem.root, Buffer::input, 0}, on_every_rank(schedule, Buffer::output), problem.count);
}

}  // namespace paceline::fan_out
