// Ring: reduce-scatter, all-gather, and both in a row as all-reduce.
//
//   p0 -> p1 -> ... -> p(n-1) -> p0           p: the schedule's order
//
// Reduce-scatter: block b starts at p(b+1) and goes once round the ring; each rank folds its own operand into it, and
// p(b) has the result. All-gather: each block goes once round the ring from its owner. Long messages are treated in
// slices of 2n chunks: two on each link, so that one travels while the other is folded.
//
// Each rank sends M (n-1)/n bytes for each of the two, whatever n is; n-1 dependent steps each.
// Time of all-reduce: 2(n-1)(ts + M/(nB)) + (n-1) M/(nR).
// Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009).
#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

int around(int position, int n) { return (position % n + n) % n; }

// The positions whose sends concern the ranks that the schedule keeps: of one rank its own and the one before.
std::vector<int> senders(const Schedule& schedule, const std::vector<int>& p) {
  const int n = schedule.ranks();
  std::vector<int> positions;
  for (int i = 0; i < n; ++i)
    if (schedule.concerns(p[i], p[around(i + 1, n)])) positions.push_back(i);
  return positions;
}

// Of one slice. `input(b)` gives the offset of block b in everyone's input; `partial(position, b)` where the fold of b
// is at a position on its way; `length(b)` how long b is.
template <class Input, class Partial, class Length>
void reduce_scatter(Schedule& schedule, const std::vector<int>& p, Input input, Partial partial, Length length) {
  const int n = schedule.ranks();
  const std::vector<int> positions = senders(schedule, p);
  for (int step = 0; step < n - 1; ++step) {
    for (const int i : positions) {
      const int next = around(i + 1, n);
      const int b = around(i - 1 - step, n);
      const Place from = step == 0 ? Place{p[i], Buffer::input, input(b)} : partial(i, b);
      schedule.reduce(by_rank({from, {p[next], Buffer::input, input(b)}}), partial(next, b), length(b));
    }
    schedule.round();
  }
}

// Of one slice. `first(b)` gives where the owner has block b, `output(b)` its offset in everyone's output.
template <class First, class Output, class Length>
void all_gather(Schedule& schedule, const std::vector<int>& p, First first, Output output, Length length) {
  const int n = schedule.ranks();
  for (int b = 0; b < n; ++b) schedule.move(first(b), {p[b], Buffer::output, output(b)}, length(b));
  const std::vector<int> positions = senders(schedule, p);
  for (int step = 0; step < n - 1; ++step) {
    for (const int i : positions) {
      const int b = around(i - step, n);
      const Place from = step == 0 ? first(b) : Place{p[i], Buffer::output, output(b)};
      schedule.move(from, {p[around(i + 1, n)], Buffer::output, output(b)}, length(b));
    }
    schedule.round();
  }
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const bool both = problem.collective == Collective::all_reduce;
  const Sizes m(problem, parameters, model, both ? problem.ranks : 1);
  const double all = m.others * m.part;
  // What is not passed on is a rank's own block; of an all-reduce not even that, in the second half. What is passed on
  // each rank takes over from the one before: none reads what others read (engine/plan.h).
  const Load scatter{
      .steps = 2 * m.others * m.chunks, .sent = all, .passed = all - m.part, .folded = all, .written = all};
  const Load gather{.steps = 2 * m.others * m.chunks,
                    .sent = all,
                    .passed = both ? all : all - m.part,
                    .taken = all,
                    .copied = both ? 0 : m.kept};
  const Load load = both ? scatter + gather : problem.collective == Collective::all_gather ? gather : scatter;
  // Two chunks on each link, so half of the steps wait.
  const double waits = (both ? 2 : 1) * m.others * std::ceil(m.chunks / 2);
  return model.time(Work{.hops = waits,
                         .inside = model.hops_inside(waits),
                         .turns = waits,
                         .fill = {},
                         .busiest = load,
                         .mean = load,
                         .cable = CostModel::by_one_rank(load.sent)});
}

void write(Schedule& schedule) {
  const Problem& problem = schedule.problem();
  const int n = problem.ranks;
  const auto p = order_from(schedule, schedule.in_order(0));
  const std::size_t chunk = schedule.parameters().chunk;
  const auto block = [&](int position) { return static_cast<std::size_t>(p[position]) * problem.count; };
  if (problem.collective == Collective::all_reduce) {
    for (const Part slice : slices(problem.count, n, 2 * std::min(chunk, problem.count))) {
      const auto offset = [&](int b) { return slice.offset + part_of(slice.count, n, b).offset; };
      const auto length = [&](int b) { return part_of(slice.count, n, b).count; };
      const auto partial = [&](int position, int b) { return Place{p[position], Buffer::output, offset(b)}; };
      reduce_scatter(schedule, p, offset, partial, length);
      all_gather(
          schedule, p, [&](int b) { return partial(b, b); }, offset, length);
    }
    return;
  }
  for (const Part slice : slices(problem.count, 2, chunk)) {
    const auto in_block = [&](int b) { return block(b) + slice.offset; };
    const auto length = [&](int) { return slice.count; };
    if (problem.collective == Collective::all_gather) {
      all_gather(
          schedule, p,
          [&](int b) {
            return Place{p[b], Buffer::input, slice.offset};
          },
          in_block, length);
      continue;
    }
    // Partial results alternate between two places: one is sent while the next is folded.
    const auto partial = [&](int position, int b) {
      if (position == b) return Place{p[b], Buffer::output, slice.offset};
      schedule.need_scratch(p[position], 2 * slice.count);
      return Place{p[position], Buffer::scratch, static_cast<std::size_t>(around(position - b, n) % 2) * slice.count};
    };
    reduce_scatter(schedule, p, in_block, partial, length);
  }
}

}  // namespace

Algorithm ring_row() {
  using enum Collective;
  return {
      .name = "ring",
      .sentence = "Blocks go once round a ring to be folded, and once to be gathered.",
      .collectives = these<all_reduce, all_gather, reduce_scatter>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
