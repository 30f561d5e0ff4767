// Fan-out broadcast: the root's data leaves once, chunk by chunk, for all ranks together.
//
// In shared memory the root writes a chunk where all others read it while it writes the next: two hops, whatever n is.
// The root sends M bytes (n-1 times M where the transport has no multicast), the others none.
// Time: (M/C + 1)(ts + C/B), and for the root the posting to n-1 ranks.
// Source: the fan-out of Graham and Shipman, "MPI support for multi-core architectures", EuroPVM/MPI 2008.
#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

Parameters parameters(const Problem& problem, const CostModel& model) {
  CostModel for_all = model;  // what a chunk costs the root before its bytes
  for_all.chunk_start += model.further(problem.ranks - 1, problem.ranks) * model.receiver;
  return {.chunk = fan_chunk(problem.count, problem.ranks, for_all)};
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const double n = problem.ranks;
  const Load root{.steps = m.chunks,
                  .receivers = m.chunks * model.further(m.others, problem.ranks),
                  .sent = model.multicast(m.bytes, m.others),
                  .copied = m.kept};
  const Load other{.steps = m.chunks, .taken = m.bytes, .common = CostModel::common(m.bytes, m.others)};
  return model.time(Work{.hops = 1,
                         .inside = 0,
                         .turns = m.chunks / capacity(problem.ranks),
                         .fill = {.taken = m.chunk},
                         .busiest = model.busier(root, other),
                         .mean = 1 / n * (root + m.others * other),
                         .cable = CostModel::by_one_rank((n - model.node_ranks) * m.bytes)});
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  schedule.multicast({problem.root, Buffer::input, 0}, on_every_rank(schedule, Buffer::output), problem.count);
}

}  // namespace

Algorithm fan_out_row() {
  using enum Collective;
  return {
      .name = "fan_out",
      .sentence = "The root's data leaves once, chunk by chunk, for all ranks together.",
      .collectives = these<broadcast>,
      .parameters = parameters,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
