// Bruck's all-gather and all-to-all, for any n, in ceil(log2 n) steps.
//
// All-gather: at distance m = 1, 2, 4, ... rank r sends the m blocks from its own on (r, r+1, ..., round the end) to
// r - m, until all have all. Blocks lie at their final places; where they go round the end they are two messages.
//   Each rank sends (n-1) M bytes, M one block.    Time: ceil(log2 n) ts + (n-1) M/B.
//
// All-to-all: rank r's block for rank r + i goes a distance 2^b at step b for every bit b of i, packed with all others
// that go so. For short blocks.
//   Each rank sends about n/2 ceil(log2 n) M bytes.    Time: ceil(log2 n)(ts + n/2 M/B + n/2 M/copy).
//
// Source: Bruck et al., IEEE Trans. Parallel Distrib. Syst. 8 (1997).
#include <bit>

#include "algorithms/chunks.h"
#include "algorithms/table.h"

namespace paceline {
namespace {

void all_gather(Schedule& schedule) {
  const int n = schedule.ranks();
  const std::size_t count = schedule.problem().count;
  const auto blocks = [count](int number) { return static_cast<std::size_t>(number) * count; };
  for (int rank = 0; rank < n; ++rank)
    schedule.move({rank, Buffer::input, 0}, {rank, Buffer::output, blocks(rank)}, count);
  for (int distance = 1; distance < n; distance *= 2) {
    const int number = std::min(distance, n - distance);
    for (int rank = 0; rank < n; ++rank) {
      const int to = (rank - distance + n) % n;
      const int before_end = std::min(number, n - rank);
      const Place own = distance == 1 ? Place{rank, Buffer::input, 0} : Place{rank, Buffer::output, blocks(rank)};
      schedule.move(own, {to, Buffer::output, blocks(rank)}, blocks(before_end));
      schedule.move({rank, Buffer::output, 0}, {to, Buffer::output, 0}, blocks(number - before_end));
    }
    schedule.round();
  }
}

// Of the numbers below `end`, those that have this bit.
int with_bit(int end, int bit) {
  return ((end >> (bit + 1)) << bit) + std::max(0, (end & ((2 << bit) - 1)) - (1 << bit));
}

void all_to_all(Schedule& schedule) {
  const int n = schedule.ranks();
  const std::size_t count = schedule.problem().count;
  const auto blocks = [count](int number) { return static_cast<std::size_t>(number) * count; };
  const int steps = static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));

  // Scratch: what is packed to be sent, then an area for what each step brings.
  std::vector<int> area{0};
  int longest = 0;
  for (int bit = 0; bit < steps; ++bit) longest = std::max(longest, with_bit(n, bit));
  area[0] = longest;
  for (int bit = 0; bit < steps; ++bit) area.push_back(area.back() + with_bit(n, bit));
  for (int rank = 0; rank < n; ++rank) schedule.need_scratch(rank, blocks(area.back()));

  // Where a rank has the block that has gone, or is to go, a distance of i: before the step of bit `step`.
  const auto block = [&](int rank, int i, int step) {
    const int gone = i & ((1 << step) - 1);
    if (gone == 0) return Place{rank, Buffer::input, blocks((rank + i) % n)};
    const int bit = static_cast<int>(std::bit_width(static_cast<unsigned>(gone))) - 1;
    return Place{rank, Buffer::scratch, blocks(area[static_cast<std::size_t>(bit)] + with_bit(i, bit))};
  };
  // A rank's copies are its own affair, and many.
  std::vector<int> kept;
  for (int rank = 0; rank < n; ++rank)
    if (schedule.keeps(rank)) kept.push_back(rank);
  for (int bit = 0; bit < steps; ++bit) {
    for (const int rank : kept)
      for (int i = 1 << bit; i < n; ++i)
        if (i & (1 << bit))
          schedule.move(block(rank, i, bit), {rank, Buffer::scratch, blocks(with_bit(i, bit))}, count);
    schedule.round();
    for (int rank = 0; rank < n; ++rank) {
      schedule.move({rank, Buffer::scratch, 0},
                    {(rank + (1 << bit)) % n, Buffer::scratch, blocks(area[static_cast<std::size_t>(bit)])},
                    blocks(with_bit(n, bit)));
    }
    schedule.round();
  }
  for (const int rank : kept)
    for (int i = 0; i < n; ++i)
      schedule.move(block(rank, i, steps), {rank, Buffer::output, blocks((rank - i + n) % n)}, count);
}

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const Sizes m(problem, parameters, model);
  const int n = problem.ranks;
  const int steps = static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));
  const bool gathers = problem.collective == Collective::all_gather;
  int packed = 0;    // blocks, in all steps
  int crossing = 0;  // of a node's blocks
  double packs = 0;  // chunks of all that is sent
  for (int bit = 0; bit < steps; ++bit) {
    const int far = std::min(1 << bit, n - (1 << bit));
    packed += with_bit(n, bit);
    packs += m.chunks_of(with_bit(n, bit) * m.bytes);
    crossing += std::min(far, model.node_ranks) * (gathers ? far : with_bit(n, bit));
  }
  const double all = m.others * m.bytes;
  const Load gathered{.steps = 2 * m.others * m.chunks, .sent = all, .taken = all, .copied = m.kept};
  const Load exchanged{.steps = (packed + n) * m.chunks + 2 * packs,
                       .sent = packed * m.bytes,
                       .taken = packed * m.bytes,
                       .copied = packed * m.bytes + all + m.kept};
  const Load& load = gathers ? gathered : exchanged;
  const double waits = steps;
  return model.time(Work{.hops = waits,
                         .inside = 0,
                         .turns = waits,
                         .fill = {},
                         .busiest = load,
                         .mean = load,
                         .cable = {crossing * m.bytes, load.sent}});
}

void write(Schedule& schedule) {
  if (schedule.problem().collective == Collective::all_gather)
    all_gather(schedule);
  else
    all_to_all(schedule);
}

}  // namespace

Algorithm bruck_row() {
  using enum Collective;
  return {
      .name = "bruck",
      .sentence = "Blocks travel in packs over distances 1, 2, 4, ...",
      .collectives = these<all_gather, all_to_all>,
      .cost_of_several = cost,
      .write_for_several = write,
      .measured = true,
  };
}

}  // namespace paceline
