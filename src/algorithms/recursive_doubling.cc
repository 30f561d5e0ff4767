// Recursive doubling all-reduce, for any n.
//
// With n a power of two, rank r exchanges everything it has with r ^ 1, r ^ 2, r ^ 4, ... and folds: after log2 n steps
// everyone has everything. Else the first 2(n - p) ranks, p the power of two below n, go in pairs: the odd one hands
// its input to the even one, which acts for both, and gets the result at the end.
//
// Each rank sends log2 n times M bytes.    Time: ceil(log2 n)(ts + M/B + M/R), and 2 ts + 2 M/B + M/R with a surplus.
// Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
#include <bit>

#include "algorithms/algorithms.h"
#include "algorithms/chunks.h"
#include "algorithms/surplus.h"

namespace paceline::recursive_doubling {

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  if (m.others == 0) return model.time(Load{.copied = m.kept});
  const Surplus surplus(problem.ranks);
  const int rounds = std::countr_zero(static_cast<unsigned>(surplus.actors));
  const Load acts = rounds * Load{.steps = 2 * m.chunks, .sent = m.bytes, .folded = m.bytes};
  return surplus.all_reduce_time(m, model, rounds, acts, m.chunks);
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const Surplus surplus(problem.ranks);
  if (problem.ranks == 1) return schedule.move({0, Buffer::input, 0}, {0, Buffer::output, 0}, problem.count);

  for (const Part slice : slices(problem.count, 2, schedule.parameters().chunk)) {
    const auto input = [&](int rank) { return Place{rank, Buffer::input, slice.offset}; };
    const auto output = [&](int rank) { return Place{rank, Buffer::output, slice.offset}; };
    surplus.fold_pairs(schedule, slice);

    for (int distance = 1; distance < surplus.actors; distance *= 2) {
      // What an actor has before it has folded anything is its input.
      const auto held = [&](int actor) {
        const int rank = surplus.rank(actor);
        return distance == 1 && actor >= surplus.pairs ? input(rank) : output(rank);
      };
      for (int low = 0; low < surplus.actors; ++low) {
        if (low & distance) continue;
        const int high = low + distance;
        schedule.reduce(std::vector{held(low), held(high)},
                        std::vector{output(surplus.rank(low)), output(surplus.rank(high))}, slice.count);
      }
      schedule.round();
    }
    surplus.serve_pairs(schedule, slice);
  }
}

}  // namespace paceline::recursive_doubling
