// Hierarchical broadcast: a pipelined chain goes from node to node; in each node a second one starts at the rank that
// is reached.
//
// Each rank sends M bytes inside its node, and one of them M bytes to the next node.
// Time: (k + nodes + g - 3)(ts + C/B), g ranks a node.
//
// Source: levels as in Awan et al., Parallel Computing 85 (2019).
#include "algorithms/chunks.h"
#include "algorithms/hierarchical.h"
#include "base/index.h"

namespace paceline::hierarchical {

void broadcast(Schedule& schedule, const Layout& layout) {
  const auto chunks = slices(schedule.problem().count, 1, schedule.parameters().chunk);
  const int k = static_cast<int>(chunks.size());
  int root = 0;
  while (schedule.in_order(root) != schedule.problem().root) ++root;
  const auto rank = [&](int node, int local) {
    return layout.rank(schedule, (root / layout.ranks + node) % layout.nodes,
                       (root % layout.ranks + local) % layout.ranks);
  };
  // The rank on node i, place j of its chain, has chunk c from round c + i + j on.
  for (int round = 0; round < k + layout.nodes + layout.ranks - 2; ++round) {
    for (int i = 0; i < layout.nodes; ++i) {
      for (int j = 0; j < layout.ranks; ++j) {
        const int chunk = round - i - j;
        if (chunk < 0 || chunk >= k) continue;
        const auto [offset, count] = chunks[at(chunk)];
        const Place here{rank(i, j), i + j == 0 ? Buffer::input : Buffer::output, offset};
        if (j == 0 && i + 1 < layout.nodes) schedule.move(here, {rank(i + 1, 0), Buffer::output, offset}, count);
        if (j + 1 < layout.ranks) schedule.move(here, {rank(i, j + 1), Buffer::output, offset}, count);
        if (i + j == 0) schedule.move(here, {here.rank, Buffer::output, offset}, count);
      }
    }
    schedule.round();
  }
}

double broadcast_cost(const Problem& problem, const Parameters& parameters, const CostModel& model,
                      const Layout& layout) {
  const Sizes m(problem, parameters, model);
  const auto sends = [](double bytes, double steps) { return Load{.steps = steps, .sent = bytes}; };
  const auto passes_on = [](double bytes, double steps) {
    return Load{.steps = steps, .sent = bytes, .passed = bytes};
  };
  const auto takes = [others = problem.ranks - 1](double bytes, double steps) {
    return Load{.steps = steps, .taken = bytes, .common = CostModel::common(bytes, others)};
  };
  std::vector<Load> loads(at(problem.ranks));
  for (int i = 0; i < layout.nodes; ++i) {
    for (int j = 0; j < layout.ranks; ++j) {
      Load& load = loads[at(i * layout.ranks + j)];
      load = i + j == 0 ? Load{.copied = m.kept} : takes(m.bytes, m.chunks);
      const bool to_next_node = j == 0 && i + 1 < layout.nodes;
      const bool to_next_rank = j + 1 < layout.ranks;
      if (to_next_node || to_next_rank)
        load = load + (i + j == 0 ? sends(m.bytes, m.chunks) : passes_on(m.bytes, m.chunks));
      if (to_next_node && to_next_rank) load = load + sends(m.bytes, m.chunks);
    }
  }
  const int hops = layout.nodes + layout.ranks - 2;
  Work work = model.work(loads);
  work.hops = hops;
  work.inside = layout.ranks - 1;
  if (layout.nodes > 1) work.cable = CostModel::by_one_rank(m.bytes + (layout.nodes - 2) * m.chunk);
  work.turns = hops + m.chunks / capacity(problem.ranks);
  work.fill =
      (1 - model.duplex) * takes(m.chunk, 1) + std::max(0, hops - 1) * (passes_on(m.chunk, 1) + takes(m.chunk, 1));
  return model.time(work);
}

}  // namespace paceline::hierarchical
