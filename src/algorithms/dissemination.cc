// Dissemination barrier: in round i rank r tells r + 2^i that it, and all that it has heard of, have come.
//
// A message is one element of scratch, whose value does not matter. Each rank sends ceil(log2 n) messages.
// Time: ceil(log2 n) ts.
// Source: Hensgen, Finkel and Manber, Int. J. Parallel Program. 17 (1988).
#include <bit>

#include "algorithms/table.h"

namespace paceline {
namespace {

double cost(const Problem& problem, const Parameters&, const CostModel& model) {
  const double rounds = std::bit_width(static_cast<unsigned>(problem.ranks - 1));
  const Load load{.steps = 2 * rounds};
  return model.time(
      Work{.hops = rounds, .inside = 0, .turns = rounds, .fill = {}, .busiest = load, .mean = load, .cable = {}});
}

void write(Schedule& schedule) {
  const int n = schedule.ranks();
  for (int distance = 1; distance < n; distance *= 2) {
    for (int rank = 0; rank < n; ++rank) {
      schedule.need_scratch(rank, 2);
      schedule.move({rank, Buffer::scratch, 0}, {(rank + distance) % n, Buffer::scratch, 1}, 1);
    }
    schedule.round();
  }
}

}  // namespace

Algorithm dissemination_row() {
  using enum Collective;
  return {
      .name = "dissemination",
      .sentence = "Ranks tell those at distance 1, 2, 4, ... whom they have heard of.",
      .collectives = these<barrier>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
