// Rabenseifner's all-reduce: reduce-scatter by recursive halving, all-gather by recursive doubling, for any n.
//
// With n not a power of two the first 2(n - p) ranks go in pairs (surplus.h): the even one acts for both. Long messages
// are treated in slices of 2p chunks, so that the second half finds in the cache what the first has left.
//
// Each rank sends 2 M (n-1)/n bytes, as in the ring, in 2 log2 n steps.
// Time: 2 log2 n ts + (n-1)/n (2 M/B + M/R), and 2 ts + 2 M/B + M/R with a surplus.
// Source: Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
#include <bit>

#include "algorithms/chunks.h"
#include "algorithms/surplus.h"
#include "algorithms/table.h"
#include "schedule/cables.h"

namespace paceline {
namespace {

// Of messages that no cache holds, sums of some ranks and parts that are handed on go to memory and come back, which
// takes three times as long as a copy in the caches. From so many bytes on, where ranks share CPUs.
constexpr double beyond_caches = 24 << 20;

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Surplus surplus(problem.ranks);
  const Sizes m(problem, parameters, model, surplus.actors);
  const int rounds = std::countr_zero(static_cast<unsigned>(surplus.actors));
  const double moved = (surplus.actors - 1) * m.part;
  double beside = 0;
  for (int distance = 1; distance < surplus.actors; distance *= 2)
    if (surplus.pairs == 0 && model.share_a_home(distance)) beside += 2 * distance * m.part;
  const double again = model.homes > 0 && m.bytes >= beyond_caches ? moved : 0;
  const Load acts{.steps = 4 * (surplus.actors - 1) * m.chunks,
                  .sent = 2 * moved,
                  .beside = beside,
                  .taken = moved,
                  .folded = moved,
                  .written = moved,
                  .copied = 3 * again};
  Cables cables(model, problem.ranks);
  for (int distance = 1; distance < surplus.actors; distance *= 2)
    for (int actor = 0; actor < surplus.actors; ++actor)
      cables.move(surplus.rank(actor), surplus.rank(actor ^ distance), 2 * distance * m.part);
  return surplus.all_reduce_time(m, model, 2 * rounds, 2 * model.levels_inside(surplus.actors), acts,
                                 surplus.actors * m.chunks, cables);
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const Surplus surplus(problem.ranks);
  const int actors = surplus.actors;
  for (const Part slice : slices(problem.count, actors, 2 * std::min(schedule.parameters().chunk, problem.count))) {
    const auto begin = [&](int part) {
      return slice.offset + (part == actors ? slice.count : part_of(slice.count, actors, part).offset);
    };
    const auto input = [](int rank, std::size_t offset) { return Place{rank, Buffer::input, offset}; };
    const auto output = [](int rank, std::size_t offset) { return Place{rank, Buffer::output, offset}; };

    surplus.fold_pairs(schedule, slice);
    const auto share = [&](int low, int high, int keeper, int first, int end, bool first_time) {
      const auto held = [&](int actor) {
        const int rank = surplus.rank(actor);
        return first_time && actor >= surplus.pairs ? input(rank, begin(first)) : output(rank, begin(first));
      };
      schedule.reduce(std::vector{held(low), held(high)}, output(surplus.rank(keeper), begin(first)),
                      begin(end) - begin(first));
    };
    surplus.halve(share, [&] { schedule.round(); });

    for (int distance = 1; distance < actors; distance *= 2) {
      for (int actor = 0; actor < actors; ++actor) {
        const int first = actor & -distance;  // of the parts that it has
        schedule.move(output(surplus.rank(actor), begin(first)), output(surplus.rank(actor ^ distance), begin(first)),
                      begin(first + distance) - begin(first));
      }
      schedule.round();
    }
    surplus.serve_pairs(schedule, slice);
  }
}

}  // namespace

Algorithm rabenseifner_row() {
  using enum Collective;
  return {
      .name = "rabenseifner",
      .sentence = "Recursive halving to scatter and fold, recursive doubling to gather.",
      .collectives = these<all_reduce>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
      .by_actors = true,
  };
}

}  // namespace paceline
