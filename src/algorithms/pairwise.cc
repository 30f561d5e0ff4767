// Pairwise all-to-all: in round s, ranks a and b with a + b = s (mod n) exchange their blocks.
//
// In n rounds every rank has each of the others as its partner once, and once itself. What it receives in a round goes
// to the place of what it sends in it: the schedule would do in place, too. But calls never run it so: an input that is
// the output is copied first (problem.h, may_be_in_place).
//
// Each rank sends (n-1) M bytes, M one block, in n-1 exchanges.    Time: (n-1)(ts + M/B), and once more that of an
// exchange where n > 2, since ranks have themselves in different rounds.
// Source: Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
#include "algorithms/chunks.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const double all = m.others * m.bytes;
  const Load load{.steps = 2 * m.others * m.chunks, .sent = all, .taken = all, .copied = m.kept};
  const double rounds = m.others;
  const double turns = rounds * (1 + m.chunks / capacity(problem.ranks));
  return model.time(Work{.hops = rounds,
                         .inside = 0,
                         .turns = turns,
                         .fill = {},
                         .busiest = load,
                         .mean = load,
                         .cable = model.to_all_others(m.bytes, problem.ranks)});
}

void write(Schedule& schedule) {
  const int n = schedule.ranks();
  const std::size_t count = schedule.problem().count;
  const auto block = [count](int rank) { return static_cast<std::size_t>(rank) * count; };
  for (int sum = 0; sum < n; ++sum) {
    for (int rank = 0; rank < n; ++rank) {
      const int partner = (sum - rank + n) % n;
      schedule.move({rank, Buffer::input, block(partner)}, {partner, Buffer::output, block(rank)}, count);
    }
    schedule.round();
  }
}

}  // namespace

Algorithm pairwise_row() {
  using enum Collective;
  return {
      .name = "pairwise",
      .sentence = "In each round every rank exchanges blocks with one partner.",
      .collectives = these<all_to_all>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
