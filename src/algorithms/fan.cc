// Fan barrier: every rank tells every other one, with one multicast.
//
// A message is one element of scratch, whose value does not matter. One dependent step: with more ranks than CPUs each
// rank needs its turn once, where the dissemination barrier needs log2 n turns of everyone.
// Each rank sends one message and takes n-1.    Time: ts + (n-1) times what a step costs.
// Source: the n-way dissemination of Hoefler et al., "Fast barrier synchronization for InfiniBand", IPDPS 2006, in one
// round.
#include "algorithms/order.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

double cost(const Problem& problem, const Parameters&, const CostModel& model) {
  const double others = problem.ranks - 1;
  const Load load{.steps = others + 1 + model.multicast_share * others,
                  .receivers = model.further(problem.ranks - 1, problem.ranks)};
  return model.time(Work{.hops = 1,
                         .inside = 0,
                         .turns = 1,
                         .boards = others - 1,
                         .fill = {},
                         .busiest = load,
                         .mean = load,
                         .cable = {}});
}

void write(Schedule& schedule) {
  const auto told = on_every_rank(schedule, Buffer::scratch, 1);
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    schedule.need_scratch(rank, 2);
    std::vector<Place> others = told;
    others.erase(others.begin() + rank);
    schedule.multicast({rank, Buffer::scratch, 0}, others, 1);
  }
}

}  // namespace

Algorithm fan_row() {
  using enum Collective;
  return {
      .name = "fan",
      .sentence = "Every rank tells every other one.",
      .collectives = these<barrier>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
