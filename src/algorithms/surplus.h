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

  int actors;  // a power of two
  int pairs;
};

}  // namespace paceline
