// Algorithms for a power of two of ranks, on any number: the surplus ranks let a neighbour act for them.
//
//   ranks    0 1   2 3   4   5   6  ...      the first 2 `pairs` ranks go in pairs, whose even rank acts for both
//   actors   0     1     2   3   4  ...
#pragma once

#include <bit>

namespace paceline {

struct Surplus {
  explicit Surplus(int ranks)
      : actors(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))), pairs(ranks - actors) {}

  // The rank that is this actor; ranks [rank(a), rank(a + 1)) are those that it acts for.
  [[nodiscard]] int rank(int actor) const { return actor < pairs ? 2 * actor : actor + pairs; }

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
