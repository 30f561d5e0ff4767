// The two trees of the double-tree algorithm, for it, for all-reduces between nodes, and for tests of their shape.
//
// Tree 0 over positions 1..n: odd positions are leaves; a position p = 2^b * odd is at height b, between its children
// p - 2^(b-1) and p + 2^(b-1). Where n cuts a tree short, what is below the missing position moves up. Tree 1 is the
// mirror image for n even and shifted by one for n odd, so that leaves and inner positions change places: every rank is
// inner in at most one of them.
#pragma once

#include <cstddef>
#include <vector>

#include "algorithms/chunks.h"

namespace paceline {

struct Tree {
  std::vector<int> parent;                 // by rank position 0..n-1; -1 for the root
  std::vector<std::vector<int>> children;  // at most two
  std::vector<int> depth;                  // 0 for the root
  int height = 0;                          // the largest depth
};

// which = 0 or 1.
Tree tree_of_two(int which, int ranks);

// What the rank at this position does in an all-reduce of the tree's half, m.part: of `ranks`, all of the call.
Load load_of_half(const Tree& tree, std::size_t position, const Sizes& m, const CostModel& model, int ranks);

}  // namespace paceline
