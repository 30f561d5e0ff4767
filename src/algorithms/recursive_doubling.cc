// Recursive doubling all-reduce, for any n.
//
// With n a power of two, rank r exchanges everything it has with r ^ 1, r ^ 2, r ^ 4, ... and folds: after log2 n steps
// everyone has everything. With radix k = 4 groups of four exchange instead of pairs: half as many steps, each with
// three messages to fold, which is faster for short ones where a step is dear. With n no power of two the first
// 2(n - p) ranks, p the power of two below n, go in pairs: the odd one hands its input to the even one, which acts for
// both, and gets the result at the end.
//
// Each rank sends log_k n times M bytes (k-1 times as much without multicast).
// Time: ceil(log_k n)(ts + M/B + (k-1) M/R), and 2 ts + 2 M/B + M/R with a surplus.
// Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005); for k > 2 Ruefenacht, Bull and
// Booth, "Generalisation of recursive doubling for AllReduce", Parallel Computing 69 (2017).
#include <bit>

#include "algorithms/chunks.h"
#include "algorithms/surplus.h"
#include "algorithms/table.h"
#include "schedule/cables.h"

namespace paceline {
namespace {

// Groups nest only where their sizes are powers of two.
int radix_of(const Parameters& parameters) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(parameters.radix)));
}

// Actors that exchange at a distance: `radix` of them, or what is left.
int group_size(const Surplus& surplus, int distance, int radix) { return std::min(radix, surplus.actors / distance); }

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const Surplus surplus(problem.ranks);
  const int radix = radix_of(parameters);
  int rounds = 0;
  int at_once = 0;  // beyond one in each round
  Load acts;
  Cables cables(model, problem.ranks);
  for (int distance = 1; distance < surplus.actors; distance *= radix) {
    const int partners = group_size(surplus, distance, radix) - 1;
    acts = acts + Load{.steps = (partners + 1) * m.chunks,
                       .receivers = m.chunks * model.further(partners, problem.ranks),
                       .sent = model.multicast(m.bytes, partners),
                       .folded = partners * m.bytes,
                       .written = m.bytes,
                       .common = CostModel::common(partners * m.bytes, partners)};
    const int group = distance * (partners + 1);
    for (int actor = 0; actor < surplus.actors; ++actor) {
      const int first = actor / group * group;
      const int end = std::min(first + group, surplus.actors);
      for (int partner = first + actor % distance; partner < end; partner += distance)
        cables.move(surplus.rank(actor), surplus.rank(partner), m.bytes);
    }
    ++rounds;
    at_once += partners - 1;
  }
  return surplus.all_reduce_time(m, model, rounds, model.levels_inside(surplus.actors, radix), acts, m.chunks, cables,
                                 at_once, radix == problem.ranks);
}

Parameters parameters(const Problem& problem, const CostModel& model) {
  const Parameters pairs{.chunk = largest_chunk(model), .radix = 2};
  const Parameters fours{.chunk = largest_chunk(model), .radix = 4};
  // In shared memory pairs exchange lines that are already in their caches, while a group reads in turn what each has
  // written once: 5 KB on 16 ranks take 7.4 us in fours, 5.1 in pairs, 20 KB 26 and 11, 2 KB the same (Xeon).
  return !model.all_in_shared_memory() && cost(problem, fours, model) < cost(problem, pairs, model) ? fours : pairs;
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const Surplus surplus(problem.ranks);
  const int radix = radix_of(schedule.parameters());
  for (const Part slice : slices(problem.count, 2, schedule.parameters().chunk)) {
    surplus.fold_pairs(schedule, slice);
    for (int distance = 1; distance < surplus.actors; distance *= radix) {
      const int size = group_size(surplus, distance, radix);
      for (int first = 0; first < surplus.actors; ++first) {
        if (first / distance % size != 0) continue;
        std::vector<Place> held, results;
        for (int actor = first; actor < first + size * distance; actor += distance) {
          const int rank = surplus.rank(actor);
          results.push_back({rank, Buffer::output, slice.offset});
          // What an actor has before it has folded anything is its input.
          const bool fresh = distance == 1 && actor >= surplus.pairs;
          held.push_back({rank, fresh ? Buffer::input : Buffer::output, slice.offset});
        }
        schedule.reduce(held, results, slice.count);
      }
      schedule.round();
    }
    surplus.serve_pairs(schedule, slice);
  }
}

}  // namespace

Algorithm recursive_doubling_row() {
  using enum Collective;
  return {
      .name = "recursive_doubling",
      .sentence = "Ranks at distance 1, 2, 4, ... exchange and fold all they have.",
      .collectives = these<all_reduce>,
      .parameters = parameters,
      .cost_of_several = cost,
      .write_for_several = write,
      .has_radix = true,
      .measured = true,
      .by_actors = true,
  };
}

}  // namespace paceline
