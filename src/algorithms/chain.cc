// Chain broadcast: each rank forwards the whole message when it has all of it.
//
//   root = p0 -> p1 -> ... -> p(n-1)          p: the schedule's order, rotated so that the root comes first
//
// The plain form, to compare the pipelined chain with. Each rank sends M bytes (the last none).
// Time: (n-1)(ts + M/B).
// Source: the chain of Pjesivac-Grbovic et al., Cluster Computing 10 (2007), with one segment.
#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const Load link{.steps = 2 * m.chunks, .sent = m.bytes, .taken = m.bytes};
  const Load root{.steps = m.chunks, .sent = m.bytes, .copied = m.kept};
  // On each link the receiver takes while the sender sends, where CPUs copy a chunk later, and nothing else goes on.
  const Load last{.taken = (1 - model.duplex) * m.chunk};
  const int crossings = m.others / model.node_ranks;
  return model.time(Work{.hops = static_cast<double>(m.others),
                         .inside = model.hops_inside(m.others),
                         .turns = static_cast<double>(m.others),
                         .fill = last + (m.others - 1) * Load{.steps = m.chunks, .sent = m.bytes},
                         .busiest = root,
                         .mean = 1.0 / problem.ranks * (m.others * link + Load{.copied = m.kept}),
                         .cable = CostModel::by_one_rank(crossings * m.bytes)});
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

}  // namespace

Algorithm chain_row() {
  using enum Collective;
  return {
      .name = "chain",
      .sentence = "Each rank forwards the whole message when it has all of it.",
      .collectives = these<broadcast>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
