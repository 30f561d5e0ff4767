// Recursive halving reduce-scatter, for any n.
//
// With n a power of two, rank r exchanges with r ^ n/2 the half of the blocks that lies on the other's side, folds what
// it gets into its own half, and goes on with r ^ n/4 and a quarter, down to its one block. Else the first 2(n - p)
// ranks, p the power of two below n, go in pairs (surplus.h), and the even one ends with the blocks of both.
//
// Each rank sends (n-1)/n of the n blocks of M bytes.    Time: log2 n ts + (n-1)(M/B + M/R), and ts + n (M/B + M/R)
// with a surplus.
// Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
#include <bit>

#include "algorithms/chunks.h"
#include "algorithms/surplus.h"
#include "algorithms/table.h"
#include "schedule/cables.h"

namespace paceline {
namespace {

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const Surplus surplus(problem.ranks);
  std::vector<Load> loads(static_cast<std::size_t>(problem.ranks));
  Cables cables(model, problem.ranks);
  const auto move = [&](int from, int to, double blocks, bool folds) {
    Load& sender = loads[static_cast<std::size_t>(from)];
    Load& receiver = loads[static_cast<std::size_t>(to)];
    const double bytes = blocks * m.bytes;
    cables.move(from, to, bytes);
    sender = sender + Load{.steps = blocks * m.chunks, .sent = bytes};
    const double folded = folds ? bytes : 0;
    receiver =
        receiver + Load{.steps = blocks * m.chunks, .taken = bytes - folded, .folded = folded, .written = folded};
  };
  for (int pair = 0; pair < surplus.pairs; ++pair) {
    move(2 * pair + 1, 2 * pair, problem.ranks, true);
    move(2 * pair, 2 * pair + 1, 1, false);
  }
  const auto share = [&](int low, int high, int keeper, int first, int end, bool) {
    move(surplus.rank(keeper == low ? high : low), surplus.rank(keeper), surplus.rank(end) - surplus.rank(first), true);
  };
  surplus.halve(share, [] {});
  Work work = model.work(loads);
  const int around = surplus.pairs > 0 ? 2 : 0;
  work.hops = work.turns = std::countr_zero(static_cast<unsigned>(surplus.actors)) + around;
  work.inside = model.levels_inside(surplus.actors) + around;
  work.cable = cables.busiest();
  if (surplus.pairs > 0 && model.sharing <= 1) {
    // Even ranks wait for the first chunk, and on where odd ones give slower than they fold; at last odd ones take.
    const Load given{.sent = problem.ranks * m.bytes};
    const Load folding{.folded = given.sent, .written = given.sent};
    work.fill = Load{.sent = m.chunk, .taken = m.bytes} + model.busier({}, given + -1.0 * folding);
  }
  return model.time(work);
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const int n = problem.ranks;
  const std::size_t count = problem.count;
  const Surplus surplus(n);
  const auto blocks = [count](int number) { return static_cast<std::size_t>(number) * count; };
  // A rank folds in scratch, which has room for all blocks at their places, and its own block at last in the output.
  const auto folded = [&](int rank, int block) {
    schedule.need_scratch(rank, blocks(n));
    return Place{rank, Buffer::scratch, blocks(block)};
  };
  for (int pair = 0; pair < surplus.pairs; ++pair) {
    const int even = 2 * pair;
    schedule.reduce(std::vector<Place>{{even, Buffer::input, 0}, {even + 1, Buffer::input, 0}}, folded(even, 0),
                    blocks(n));
  }
  schedule.round();

  const auto share = [&](int low, int high, int keeper, int first, int end, bool first_time) {
    const auto held = [&](int actor, int block) {
      const int rank = surplus.rank(actor);
      return first_time && actor >= surplus.pairs ? Place{rank, Buffer::input, blocks(block)} : folded(rank, block);
    };
    const int begin = surplus.rank(first);
    const int stop = surplus.rank(end);
    const int own = surplus.rank(keeper);
    if (end - first > 1) {
      schedule.reduce(std::vector{held(low, begin), held(high, begin)}, folded(own, begin), blocks(stop - begin));
      return;
    }
    for (int block = begin; block < stop; ++block) {
      const Place to = block == own ? Place{own, Buffer::output, 0} : folded(own, block);
      schedule.reduce(std::vector{held(low, block), held(high, block)}, to, count);
    }
  };
  surplus.halve(share, [&] { schedule.round(); });
  for (int pair = 0; pair < surplus.pairs; ++pair)
    schedule.move(folded(2 * pair, 2 * pair + 1), {2 * pair + 1, Buffer::output, 0}, count);
}

}  // namespace

Algorithm recursive_halving_row() {
  using enum Collective;
  return {
      .name = "recursive_halving",
      .sentence = "Ranks at distance n/2, n/4, ... exchange and fold half of what they have.",
      .collectives = these<reduce_scatter>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
