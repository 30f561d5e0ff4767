// One-shot all-reduce: every rank multicasts its whole input, and every rank folds all n inputs in the order of ranks.
//
// One dependent step, so the fastest for short messages. Each rank sends M bytes, receives and folds (n-1) M.
// Time: ts + M/B + (n-1) M/R.
// Source: the one-phase all-pairs of Shah et al., "MSCCL++", arXiv:2504.09014 (2025).
#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const Load load{.steps = m.chunks * (m.others + 1),
                  .receivers = m.chunks * model.further(m.others, problem.ranks),
                  .sent = model.multicast(m.bytes, m.others),
                  .folded = m.others * m.bytes,
                  .written = m.bytes,
                  .common = CostModel::common(m.others * m.bytes, m.others)};
  return model.time(Work{.hops = 1,
                         .inside = 0,
                         .turns = m.chunks,
                         .boards = m.others - 1.0,
                         .fill = {},
                         .busiest = load,
                         .mean = load,
                         .cable = model.to_all_others(m.bytes, problem.ranks)});
}

void write(Schedule& schedule) {
  schedule.reduce(on_every_rank(schedule, Buffer::input), on_every_rank(schedule, Buffer::output),
                  schedule.problem().count);
}

}  // namespace

Algorithm one_shot_row() {
  using enum Collective;
  return {
      .name = "one_shot",
      .sentence = "Every rank multicasts its input and folds all inputs in the order of ranks.",
      .collectives = these<all_reduce>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
