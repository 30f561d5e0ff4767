// Direct: every block goes from the rank that has it straight to the rank that needs it.
//
//   broadcast, scatter      the root sends to each rank in turn
//   gather, reduce          every rank sends to the root, which folds all n operands at once
//   all_gather              every rank multicasts its block
//   reduce_scatter          every rank sends each block to its owner, which folds all n operands at once
//   all_to_all              every rank sends to rank + 1, rank + 2, ... , so that not all send to one
//
// Each rank sends no byte that is not asked for, in one dependent step: the best for short messages, and for gather,
// scatter and all-to-all at any size. Broadcast: (n-1)(ts + M/B). All-to-all of blocks of M: (n-1)(ts + M/B).
#include "algorithms/algorithms.h"
#include "algorithms/order.h"

namespace paceline::direct {

double cost(const Problem& problem, const Parameters&, const CostModel& model) {
  const int others = problem.ranks - 1;
  const double block = static_cast<double>(problem.count * model.element);
  const double fold = block * model.sharing / model.reduce_bandwidth;
  const double in_turn = model.message(block) + model.stream(block * (others - 1), others - 1);
  if (others == 0) return model.step;
  switch (problem.collective) {
    case Collective::all_gather: return model.multicast(block, others) + model.stream(block * others, others);
    case Collective::reduce: return in_turn + others * fold;
    case Collective::reduce_scatter: return in_turn + model.stream(0, others) + others * fold;
    case Collective::all_to_all: return in_turn + model.stream(block * others, others);
    default: return in_turn;
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
      for (int rank = 0; rank < n; ++rank)
        schedule.move({root, Buffer::input, 0}, {rank, Buffer::output, 0}, count);
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

}  // namespace paceline::direct
