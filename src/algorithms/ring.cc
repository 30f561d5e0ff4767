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
#include "algorithms/ring.h"

#include <algorithm>

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

// What goes round a ring in one slice.
struct Lap {
  const std::vector<int>& p;
  const std::vector<int>& senders;  // positions
  Part part;                        // of the whole data of an all-reduce, else of each block
  std::size_t scratch = 0;          // where its partial results lie there
  int channel = 0;
};

// `input(lap, b)` gives the offset of block b in everyone's input; `partial(lap, position, b)` where the fold of b is
// at a position on its way; `length(lap, b)` how long b is.
template <class Input, class Partial, class Length>
void reduce_scatter(Schedule& schedule, std::span<const Lap> laps, Input input, Partial partial, Length length) {
  const int n = schedule.ranks();
  for (int step = 0; step < n - 1; ++step) {
    for (const Lap& lap : laps) {
      for (const int i : lap.senders) {
        const int next = around(i + 1, n);
        const int b = around(i - 1 - step, n);
        const Place from = step == 0 ? Place{lap.p[i], Buffer::input, input(lap, b)} : partial(lap, i, b);
        schedule.reduce(by_rank({from, {lap.p[next], Buffer::input, input(lap, b)}}), partial(lap, next, b),
                        length(lap, b), lap.channel);
      }
    }
    schedule.round();
  }
}

// `first(lap, b)` gives where the owner has block b, `output(lap, b)` its offset in everyone's output.
template <class First, class Output, class Length>
void all_gather(Schedule& schedule, std::span<const Lap> laps, First first, Output output, Length length) {
  const int n = schedule.ranks();
  for (const Lap& lap : laps)
    for (int b = 0; b < n; ++b)
      schedule.move(first(lap, b), {lap.p[b], Buffer::output, output(lap, b)}, length(lap, b), lap.channel);
  for (int step = 0; step < n - 1; ++step) {
    for (const Lap& lap : laps) {
      for (const int i : lap.senders) {
        const int b = around(i - step, n);
        const Place from = step == 0 ? first(lap, b) : Place{lap.p[i], Buffer::output, output(lap, b)};
        schedule.move(from, {lap.p[around(i + 1, n)], Buffer::output, output(lap, b)}, length(lap, b), lap.channel);
      }
    }
    schedule.round();
  }
}

void all_reduce(Schedule& schedule, std::span<const Lap> laps) {
  const int n = schedule.ranks();
  const auto block = [n](const Lap& lap, int b) { return part_of(lap.part.count, n, b); };
  const auto offset = [&](const Lap& lap, int b) { return lap.part.offset + block(lap, b).offset; };
  const auto length = [&](const Lap& lap, int b) { return block(lap, b).count; };
  const auto partial = [&](const Lap& lap, int position, int b) {
    return Place{lap.p[position], Buffer::output, offset(lap, b)};
  };
  reduce_scatter(schedule, laps, offset, partial, length);
  all_gather(
      schedule, laps, [&](const Lap& lap, int b) { return partial(lap, b, b); }, offset, length);
}

void all_gather(Schedule& schedule, std::span<const Lap> laps) {
  const auto first = [](const Lap& lap, int b) { return Place{lap.p[b], Buffer::input, lap.part.offset}; };
  const auto output = [count = schedule.problem().count](const Lap& lap, int b) {
    return static_cast<std::size_t>(lap.p[b]) * count + lap.part.offset;
  };
  all_gather(schedule, laps, first, output, [](const Lap& lap, int) { return lap.part.count; });
}

void reduce_scatter(Schedule& schedule, std::span<const Lap> laps) {
  const int n = schedule.ranks();
  const auto input = [count = schedule.problem().count](const Lap& lap, int b) {
    return static_cast<std::size_t>(lap.p[b]) * count + lap.part.offset;
  };
  // Partial results alternate between two places: one is sent while the next is folded.
  const auto partial = [&](const Lap& lap, int position, int b) {
    const int rank = lap.p[position];
    if (position == b) return Place{rank, Buffer::output, lap.part.offset};
    schedule.need_scratch(rank, lap.scratch + 2 * lap.part.count);
    const auto place = static_cast<std::size_t>(around(position - b, n) % 2);
    return Place{rank, Buffer::scratch, lap.scratch + place * lap.part.count};
  };
  reduce_scatter(schedule, laps, input, partial, [](const Lap& lap, int) { return lap.part.count; });
}

// Parts that are cut off large slices begin at multiples of so many elements, so that vectors stay aligned.
constexpr std::size_t grain = 64;

// What each ring carries of so many elements, by its rate.
std::vector<Part> shares_of(std::size_t count, std::span<const Ring> rings) {
  double all = 0;
  for (const Ring& ring : rings) all += static_cast<double>(ring.rate);
  std::vector<Part> shares;
  double before = 0;
  for (std::size_t begin = 0; const Ring& ring : rings) {
    before += static_cast<double>(ring.rate);
    auto end = static_cast<std::size_t>(static_cast<double>(count) * (before / all));
    if (count >= grain * grain) end -= end % grain;
    if (shares.size() + 1 == rings.size()) end = count;
    shares.push_back({begin, end - begin});
    begin = end;
  }
  return shares;
}

}  // namespace

// All rings pass their parts of a slice in the same rounds.
void write_rings(Schedule& schedule, std::span<const Ring> rings) {
  const Problem& problem = schedule.problem();
  const bool both = problem.collective == Collective::all_reduce;
  const std::size_t length = std::min(schedule.parameters().chunk, problem.count) * rings.size();
  const auto all = slices(problem.count, both ? problem.ranks : 2, both ? 2 * length : length);
  std::vector<Lap> laps;
  std::vector<std::vector<int>> positions;
  for (const Ring& ring : rings) positions.push_back(senders(schedule, ring.order));
  for (std::size_t i = 0; i < rings.size(); ++i)
    laps.push_back({rings[i].order, positions[i], {}, 0, static_cast<int>(i) % max_channels});
  for (const Part slice : all) {
    const auto shares = shares_of(slice.count, rings);
    for (std::size_t i = 0; i < rings.size(); ++i) {
      laps[i].part = {slice.offset + shares[i].offset, shares[i].count};
      // As in the first slice, which is the longest, with room for what shares of others are rounded up by.
      if (slice.offset == 0) laps[i].scratch = 2 * (shares[i].offset + 2 * grain * i);
    }
    if (both)
      all_reduce(schedule, laps);
    else if (problem.collective == Collective::all_gather)
      all_gather(schedule, laps);
    else
      reduce_scatter(schedule, laps);
  }
}

double cost_of_rings(const Problem& problem, const Parameters& parameters, const CostModel& model,
                     std::span<const double> shares, Crossing cable) {
  const bool both = problem.collective == Collective::all_reduce;
  const Sizes m(problem, parameters, model, both ? problem.ranks : 1);
  const double all = m.others * m.part;
  // Bytes of a part that go in one slice: two chunks for each ring, unless their shares differ.
  const double slice = std::max(1.0, 2 * static_cast<double>(shares.size()) * std::min(m.longest, m.bytes));
  const double slices = std::max(1.0, std::ceil(m.part / slice));
  double chunks = 0;
  for (const double share : shares)
    chunks += (slices - 1) * m.chunks_of(std::floor(share * slice)) +
              m.chunks_of(std::floor(share * (m.part - (slices - 1) * slice)));
  // What is not passed on is a rank's own block; of an all-reduce not even that, in the second half. What is passed on
  // each rank takes over from the one before: none reads what others read (engine/plan.h).
  const Load scatter{
      .steps = 2 * m.others * chunks, .sent = all, .passed = all - m.part, .folded = all, .written = all};
  const Load gather{.steps = 2 * m.others * chunks,
                    .sent = all,
                    .passed = both ? all : all - m.part,
                    .taken = all,
                    .copied = both ? 0 : m.kept};
  const Load load = both ? scatter + gather : problem.collective == Collective::all_gather ? gather : scatter;
  // The chunks that a slice has on a link go one behind the other: only the first waits.
  const double waits = (both ? 2 : 1) * m.others * slices;
  return model.time(Work{.hops = waits,
                         .inside = model.hops_inside(waits),
                         .turns = waits,
                         .fill = {},
                         .busiest = load,
                         .mean = load,
                         .cable = {load.sent * cable.node, load.sent * cable.rank}});
}

namespace {

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  constexpr double all = 1;
  return cost_of_rings(problem, parameters, model, std::span(&all, 1), CostModel::by_one_rank(1));
}

void write(Schedule& schedule) {
  const Ring ring{order_from(schedule, schedule.in_order(0)), 1};
  write_rings(schedule, std::span(&ring, 1));
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
