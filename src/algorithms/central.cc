// Central barrier: every rank tells rank 0 that it has come; rank 0 tells them all that all have.
//
// A message is one element of scratch, whose value does not matter. Two dependent steps, and 2 (n-1) messages in all.
// Rank 0 leaves first: what it then sends to the others is there when they leave. With more ranks than CPUs each rank
// needs its turn once, as in a fan, and all but rank 0 have next to nothing to do in it.
// Time: 2 ts + (n-1) times what a step costs.
// Source: the centralized barrier of Mellor-Crummey and Scott, ACM Trans. Comput. Syst. 9 (1991), by messages.
#include "algorithms/order.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

double cost(const Problem& problem, const Parameters&, const CostModel& model) {
  const double others = problem.ranks - 1;
  const Load first{.steps = others + 1 + model.multicast_share * others,
                   .receivers = model.further(problem.ranks - 1, problem.ranks)};
  const Load other{.steps = 2};
  // Where a turn takes longer than a message, all have told rank 0 by the time of its turn: it waits for none of them.
  const bool told = model.switching > model.start;
  return model.time(Work{.hops = told ? 1.0 : 2.0,
                         .inside = 0,
                         .turns = 1,
                         .partners = told ? 0 : others - 1,
                         .fill = {},
                         .busiest = first,
                         .mean = 1 / (others + 1) * (first + others * other),
                         .cable = {}});
}

void write(Schedule& schedule) {
  const int n = schedule.ranks();
  for (int rank = 0; rank < n; ++rank) schedule.need_scratch(rank, 2);
  for (int rank = 1; rank < n; ++rank) schedule.move({rank, Buffer::scratch, 0}, {0, Buffer::scratch, 1}, 1);
  schedule.round();
  std::vector<Place> others = on_every_rank(schedule, Buffer::scratch, 1);
  others.erase(others.begin());
  schedule.multicast({0, Buffer::scratch, 0}, others, 1);
}

}  // namespace

Algorithm central_row() {
  using enum Collective;
  return {
      .name = "central",
      .sentence = "Every rank tells rank 0, which then tells all.",
      .collectives = these<barrier>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
