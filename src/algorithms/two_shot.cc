// Two-shot all-reduce and reduce: reduce-scatter by direct messages, then every rank hands on its part.
//
// The message is treated in slices of n chunks. Of each slice rank r owns part r: first everyone sends it that part and
// r folds all n operands at once, in the order of ranks; then r multicasts the result (reduce: sends it to the root).
// The second shot of one slice goes with the first shot of the next, so that nobody waits for an answer.
//
// Two dependent steps. Each rank sends 2 M (n-1)/n bytes, with a multicast M, and folds M (n-1)/n.
// Time: 2 ts + (n-1)/n (2 M/B + M/R).
// Source: the two-phase all-pairs of Shah et al., "MSCCL++", arXiv:2504.09014 (2025). Reduce: Rabenseifner, ICCS 2004.
#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "algorithms/table.h"
#include "base/rounding.h"

namespace paceline {
namespace {

Parameters parameters(const Problem& problem, const CostModel& model) {
  if (problem.collective == Collective::reduce) return largest_chunks(problem, model);
  const auto n = static_cast<std::size_t>(problem.ranks);
  return {.chunk = exchange_chunk(divided_up(problem.count, n), problem.ranks, model)};
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const int n = problem.ranks;
  const Sizes m(problem, parameters, model, n);
  const double others = m.others * m.part;
  const Load first{.steps = m.chunks * n, .sent = others, .folded = others, .written = m.part};
  const bool all = problem.collective == Collective::all_reduce;
  const Load takes{
      .steps = m.chunks * m.others, .taken = others, .common = all ? CostModel::common(others, m.others) : 0};
  const Load hands_on{.steps = m.chunks,
                      .receivers = all ? m.chunks * model.further(m.others, n) : 0,
                      .sent = all ? model.multicast(m.part, m.others) : m.part};
  // In the second shot of a reduce, all that comes to the root's node comes to the root.
  const Crossing shot = model.to_all_others(m.part, n);
  const double to_root = (n - model.node_ranks) * m.part;
  return model.time(
      Work{.hops = 2,
           .inside = 0,
           .turns = m.chunks + 1,
           .partners = (all ? 1.0 : 2.0) * (m.others - 1),
           .boards = all ? m.others - 1.0 : 0,
           .fill = {},
           .busiest = all ? first + takes + hands_on : model.busier(first + takes, first + hands_on),
           .mean = all ? first + takes + hands_on : first + 1.0 / n * (takes + m.others * hands_on),
           .cable = all ? Crossing{2 * shot.node, 2 * shot.rank} : Crossing{shot.node + to_root, shot.rank + to_root}});
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const int n = problem.ranks;
  const std::size_t chunk = schedule.parameters().chunk;
  const bool all = problem.collective == Collective::all_reduce;
  const auto cut = slices(problem.count, n, chunk);

  const auto part = [&](std::size_t slice, int rank) {
    const Part part = part_of(cut[slice].count, n, rank);
    return Part{cut[slice].offset + part.offset, part.count};
  };
  // Where a rank has its folded part: at its place in the output, or in scratch (two places: one is sent, one folded).
  const std::size_t longest = cut.empty() ? 0 : part(0, 0).count;
  const auto folded = [&](std::size_t slice, int rank) {
    if (all || rank == problem.root) return Place{rank, Buffer::output, part(slice, rank).offset};
    schedule.need_scratch(rank, 2 * longest);
    return Place{rank, Buffer::scratch, (slice % 2) * longest};
  };

  for (std::size_t slice = 0; slice <= cut.size(); ++slice) {
    for (int rank = 0; rank < n && slice > 0; ++rank) {
      const auto [offset, count] = part(slice - 1, rank);
      const Place from = folded(slice - 1, rank);
      if (all)
        schedule.multicast(from, on_every_rank(schedule, Buffer::output, offset), count);
      else
        schedule.move(from, {problem.root, Buffer::output, offset}, count);
    }
    for (int rank = 0; rank < n && slice < cut.size(); ++rank) {
      const auto [offset, count] = part(slice, rank);
      schedule.reduce(on_every_rank(schedule, Buffer::input, offset), folded(slice, rank), count);
    }
    schedule.round();
  }
}

}  // namespace

Algorithm two_shot_row() {
  using enum Collective;
  return {
      .name = "two_shot",
      .sentence = "Every rank folds its part of all inputs, then hands on the result.",
      .collectives = these<all_reduce, reduce>,
      .parameters = parameters,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
