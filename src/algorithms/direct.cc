// Direct: every block goes from the rank that has it straight to the rank that needs it.
//
//   broadcast, scatter      the root sends to each rank in turn
//   gather, reduce          every rank sends to the root, which folds all n operands at once
//   all_gather              every rank multicasts its block
//   reduce_scatter          every rank sends each block to its owner, which folds all n operands at once
//   all_to_all              every rank sends to rank + 1, rank + 2, ... , so that not all send to one
//
// Each rank sends no byte that is not asked for, in one dependent step: the best for short messages, and for gather,
// scatter and all-to-all at any size. With M the message, or one block:
//
//                           sends             time
//   broadcast, scatter      root (n-1) M      (n-1)(ts + M/B)
//   gather                  others M          ts + (n-1) M/B
//   reduce                  others M          ts + (n-1)(M/B + M/R)
//   all_gather              M, once for all   ts + (n-1) M/B
//   reduce_scatter          (n-1) M           (n-1)(ts + M/B + M/R)
//   all_to_all              (n-1) M           (n-1)(ts + M/B)
//
// Source: the linear algorithms of Pjesivac-Grbovic et al., Cluster Computing 10 (2007).
#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

bool gives_only_inputs(const Problem& problem) {
  return problem.collective == Collective::scatter || problem.collective == Collective::all_to_all;
}

Parameters parameters(const Problem& problem, const CostModel& model) {
  // With a root, one side is idle until the first chunk has come; else all send at once.
  if (is_rooted(problem.collective)) return {.chunk = pipeline_chunk(problem.count, 1, model)};
  if (problem.collective == Collective::all_to_all) return largest_chunks(problem, model);
  return {.chunk = exchange_chunk(problem.count, problem.ranks, model)};
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const double all = m.others * m.bytes;
  const double steps = m.others * m.chunks;
  const double n = problem.ranks;
  // Rooted: the root has all the work, of one kind, and the others together as much of the other kind.
  const auto rooted = [&](const Load& root, const Load& others, const Load& last) {
    return model.time(Work{.hops = 1,
                           .inside = 0,
                           .turns = m.chunks,
                           .partners = root.taken + root.folded > 0 ? n - 2 : 0,
                           .fill = last,
                           .busiest = model.busier(root, 1.0 / m.others * others),
                           .mean = 1 / n * (root + others),
                           .cable = CostModel::by_one_rank((n - model.node_ranks) * m.bytes)});
  };
  // Nobody waits before its messages fill the ring.
  const auto balanced = [&](const Load& load) {
    const double turns = 1 + steps / capacity(problem.ranks);
    const bool to_all = problem.collective == Collective::all_gather;
    return model.time(Work{.hops = 1,
                           .inside = 0,
                           .turns = turns,
                           .partners = to_all ? 0 : n - 2,
                           .boards = to_all ? n - 2 : 0,
                           .fill = {},
                           .busiest = load,
                           .mean = load,
                           .cable = model.to_all_others(m.bytes, problem.ranks)});
  };
  switch (problem.collective) {
    case Collective::broadcast:
    case Collective::scatter:
      return rooted({.steps = steps, .receivers = m.chunks * (m.others - 1.0), .sent = all, .copied = m.kept},
                    {.steps = steps, .taken = all}, {.taken = m.chunk});
    case Collective::gather:
      return rooted({.steps = steps, .taken = all, .copied = m.kept}, {.steps = steps, .sent = all}, {.sent = m.chunk});
    case Collective::reduce:
      // The root waits for a chunk of each of the others, which may take turns on a CPU.
      return rooted({.steps = m.chunks, .folded = all, .written = m.bytes}, {.steps = steps, .sent = all},
                    {.sent = m.chunk * std::max(1.0, model.sharing * m.others / n)});
    case Collective::all_gather:
      return balanced({.steps = steps + m.chunks,
                       .receivers = m.chunks * model.further(m.others, problem.ranks),
                       .sent = model.multicast(m.bytes, m.others),
                       .taken = all,
                       .copied = m.kept,
                       .common = CostModel::common(all, m.others)});
    case Collective::reduce_scatter:
      return balanced({.steps = steps + m.chunks, .sent = all, .folded = all, .written = m.bytes});
    default: return balanced({.steps = 2 * steps, .sent = all, .taken = all, .copied = m.kept});
  }
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const int n = problem.ranks;
  const int root = problem.root;
  const std::size_t count = problem.count;
  const auto block = [count](int rank) { return static_cast<std::size_t>(rank) * count; };
  switch (problem.collective) {
    case Collective::broadcast:
      for (int rank = 0; rank < n; ++rank) schedule.move({root, Buffer::input, 0}, {rank, Buffer::output, 0}, count);
      break;
    case Collective::scatter:
      for (int rank = 0; rank < n; ++rank)
        schedule.move({root, Buffer::input, block(rank)}, {rank, Buffer::output, 0}, count);
      break;
    case Collective::gather:
      for (int rank = 0; rank < n; ++rank)
        schedule.move({rank, Buffer::input, 0}, {root, Buffer::output, block(rank)}, count);
      break;
    case Collective::reduce:
      schedule.reduce(on_every_rank(schedule, Buffer::input), {root, Buffer::output, 0}, count);
      break;
    case Collective::all_gather:
      for (int rank = 0; rank < n; ++rank)
        schedule.multicast({rank, Buffer::input, 0}, on_every_rank(schedule, Buffer::output, block(rank)), count);
      break;
    case Collective::reduce_scatter:
      for (int rank = 0; rank < n; ++rank)
        schedule.reduce(on_every_rank(schedule, Buffer::input, block(rank)), {rank, Buffer::output, 0}, count);
      break;
    case Collective::all_to_all:
      for (int distance = 0; distance < n; ++distance)
        for (int rank = 0; rank < n; ++rank) {
          const int to = (rank + distance) % n;
          schedule.move({rank, Buffer::input, block(to)}, {to, Buffer::output, block(rank)}, count);
        }
      break;
    default: break;
  }
}

}  // namespace

Algorithm direct_row() {
  using enum Collective;
  return {
      .name = "direct",
      .sentence = "Every block goes from the rank that has it straight to the rank that needs it.",
      .collectives = these<broadcast, reduce, all_gather, reduce_scatter, gather, scatter, all_to_all>,
      .parameters = parameters,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
      .gives_only_inputs = gives_only_inputs,
  };
}

}  // namespace paceline
