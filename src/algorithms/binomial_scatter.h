// The first half of the broadcasts that scatter and then gather: part v of a slice to position v, down a binary tree.
//
//   n = 8:    0 -> 4 (parts 4..7);   0 -> 2 (2, 3), 4 -> 6 (6, 7);   0 -> 1, 2 -> 3, 4 -> 5, 6 -> 7
//
// The parts lie at their places in the output, the root's in its input. Long messages are treated in slices of 2n
// chunks: two on each link, so that one comes while the other goes.
#pragma once

#include <algorithm>
#include <vector>

#include "algorithms/chunks.h"
#include "algorithms/order.h"
#include "schedule/schedule.h"

namespace paceline {

// A slice of the message, cut into n parts, at the positions of a broadcast whose root comes first.
class ScatteredSlice {
 public:
  ScatteredSlice(const std::vector<int>& positions, Part slice) : p_(positions), slice_(slice) {}

  // Position v has parts [v, end_of(v)) after the scatter.
  [[nodiscard]] int end_of(int v) const { return v == 0 ? ranks() : std::min(v + (v & -v), ranks()); }
  [[nodiscard]] bool has(int v, int part) const { return part >= v && part < end_of(v); }

  // Move parts [first, end) from one position to another.
  void move(Schedule& schedule, int from, int to, int first, int end) const {
    const std::size_t offset = begin(first);
    schedule.move({rank(from), from == 0 ? Buffer::input : Buffer::output, offset}, {rank(to), Buffer::output, offset},
                  begin(end) - offset);
  }

  void scatter(Schedule& schedule) const {
    int width = 1;
    while (width * 2 < ranks()) width *= 2;
    for (; width >= 1; width /= 2) {
      for (int child = width; child < ranks(); child += 2 * width)
        move(schedule, child - width, child, child, end_of(child));
      schedule.round();
    }
  }

  // The root's own output.
  void keep(Schedule& schedule) const { move(schedule, 0, 0, 0, ranks()); }

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(p_.size()); }
  [[nodiscard]] int rank(int position) const { return p_[static_cast<std::size_t>(position)]; }
  [[nodiscard]] std::size_t begin(int part) const {
    return slice_.offset + (part == ranks() ? slice_.count : part_of(slice_.count, ranks(), part).offset);
  }

  const std::vector<int>& p_;
  Part slice_;
};

// Writes the whole broadcast. gather(slice) moves a scattered slice's parts to where they lack.
template <class Gather>
void scatter_and_gather(Schedule& schedule, Gather gather) {
  const Problem& problem = schedule.problem();
  const auto p = order_from(schedule, problem.root);
  const std::size_t chunk = std::min(schedule.parameters().chunk, problem.count);
  for (const Part part : slices(problem.count, problem.ranks, 2 * chunk)) {
    const ScatteredSlice slice(p, part);
    slice.scatter(schedule);
    slice.keep(schedule);
    gather(slice);
  }
}

// Its time, with `rounds` that wait for each other, so many of them inside nodes; the busiest rank after the root sends
// so many parts, and of the gathering so many pass a cable.
inline double scatter_and_gather_time(const Problem& problem, const Parameters& parameters, const CostModel& model,
                                      double rounds, double inside, double parts_sent,
                                      const Crossing& parts_over_cable) {
  const int n = problem.ranks;
  const Sizes m(problem, parameters, model, n);
  const Load root{.steps = 2 * m.others * m.chunks, .sent = 2 * m.others * m.part, .copied = m.kept};
  const Load other{.steps = 2 * n * m.chunks, .sent = parts_sent * m.part, .taken = m.bytes};
  // Before any rank can gather, each slice goes down the tree: of the first one nothing else goes on meanwhile.
  const double first = m.others * std::min(m.part, 2 * m.chunk);
  const Load first_slice{.sent = first, .taken = first};
  const int scattered = n - model.node_ranks;  // parts that leave the root's node
  const double turns = std::ceil(m.chunks / 2);
  const double waits = rounds * turns;
  return model.time(Work{
      .hops = waits,
      .inside = inside * turns,
      .turns = waits,
      .fill = (1 - model.duplex) * first_slice,
      .busiest = model.busier(root, other),
      .mean =
          1.0 / n * (Load{.copied = m.kept} + m.others * Load{.steps = other.steps, .sent = m.bytes, .taken = m.bytes}),
      .cable = {(scattered + parts_over_cable.node) * m.part, (scattered + parts_over_cable.rank) * m.part}});
}

}  // namespace paceline
