// Algorithms for a power of two of ranks, on any number: the surplus ranks let a neighbour act for them.
//
//   ranks    0 1   2 3   4   5   6  ...      the first 2 `pairs` ranks go in pairs, whose even rank acts for both
//   actors   0     1     2   3   4  ...
#pragma once

#include <bit>
#include <vector>

#include "algorithms/chunks.h"
#include "schedule/cables.h"
#include "schedule/schedule.h"

namespace paceline {

struct Surplus {
  explicit Surplus(int ranks)
      : actors(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))), pairs(ranks - actors) {}

  // The rank that is this actor; ranks [rank(a), rank(a + 1)) are those that it acts for.
  [[nodiscard]] int rank(int actor) const { return actor < pairs ? 2 * actor : actor + pairs; }

  // The beginning of an all-reduce: each pair's inputs, folded, in its even rank's output.
  void fold_pairs(Schedule& schedule, Part slice) const {
    for (int even = 0; even < 2 * pairs; even += 2)
      schedule.reduce(std::vector<Place>{{even, Buffer::input, slice.offset}, {even + 1, Buffer::input, slice.offset}},
                      {even, Buffer::output, slice.offset}, slice.count);
    schedule.round();
  }
  // Its end: the result in the odd rank's output, too.
  void serve_pairs(Schedule& schedule, Part slice) const {
    for (int even = 0; even < 2 * pairs; even += 2)
      schedule.move({even, Buffer::output, slice.offset}, {even + 1, Buffer::output, slice.offset}, slice.count);
    schedule.round();
  }
  // Its time: `rounds` of the actors, so many of them inside nodes, each of which has `acts` to do in them; the pairs'
  // part in so many chunks. `cables`: what the actors send. `partners`: as in Work, or `boards` if each sends to all.
  [[nodiscard]] double all_reduce_time(const Sizes& m, const CostModel& model, double rounds, double inside,
                                       const Load& acts, double chunks, Cables cables, double partners = 0,
                                       bool to_all = false) const {
    for (int even = 0; even < 2 * pairs; even += 2) {
      cables.move(even + 1, even, m.bytes);
      cables.move(even, even + 1, m.bytes);
    }
    const Load folds{.steps = 2 * chunks, .sent = m.bytes, .folded = m.bytes, .written = m.bytes};
    const Load acted_for{.steps = 2 * chunks, .sent = m.bytes, .taken = m.bytes};
    const double turns = std::ceil(m.chunks / 2);
    const int around = pairs > 0 ? 2 : 0;
    const double waits = (rounds + around) * turns;
    return model.time(Work{.hops = waits,
                           .inside = (inside + around) * turns,
                           .turns = waits,
                           .partners = to_all ? 0 : partners,
                           .boards = to_all ? partners : 0,
                           .fill = {},
                           .busiest = pairs > 0 ? acts + folds : acts,
                           .mean = 1.0 / (actors + pairs) * (actors * acts + pairs * (folds + acted_for)),
                           .cable = cables.busiest()});
  }

  // Recursive halving: actors at distance actors/2, ..., 2, 1 share what they have in common; each keeps half of it.
  // Calls share(low, high, keeper, first, end, first_time) for each half: actors low and high have the parts [first,
  // end), keeper is the one that keeps them. Calls done() after each distance.
  template <class Share, class Done>
  void halve(Share share, Done done) const {
    for (int distance = actors / 2; distance >= 1; distance /= 2) {
      for (int low = 0; low < actors; ++low) {
        if (low & distance) continue;
        for (const int keeper : {low, low + distance}) {
          const int first = keeper & -distance;
          share(low, low + distance, keeper, first, first + distance, distance == actors / 2);
        }
      }
      done();
    }
  }

  int actors;  // a power of two
  int pairs;
};

}  // namespace paceline
