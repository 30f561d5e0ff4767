// Trees that use all the bandwidth there is: broadcast and all-gather at the rate of bounds.h.
//
// A broadcast sends one part of its message along each of several trees from the root (arborescences: all edges point
// away from it), an all-gather one part of each shard along each of several trees from its GPU. Trees together load no
// link beyond its bandwidth. Edmonds' theorem says that they exist up to the bound; they are found like this:
//   1. Rates become integers, as many kB/s as divide all of them.
//   2. Switches are removed (edge_splitting.h).
//   3. All trees of a root begin as one bundle that holds the root alone, with a weight: how many equal trees it stands
//      for. A bundle grows by an edge x -> y, as much of its weight as leaves all other trees possible (one maximum
//      flow tells it); where that is not all of it, the bundle splits in two.
// Polynomial, for the number of bundles does not depend on the bandwidths.
//
// Source: Edmonds (1973); Berczi and Frank, "Packing arborescences" (2010); Zhao et al., "ForestColl" (2024).
#pragma once

#include <vector>

#include "topology/bounds.h"
#include "topology/edge_splitting.h"
#include "topology/graph.h"

namespace paceline {

struct TreeEdge {
  int from = 0;  // GPUs
  int to = 0;
  std::vector<Way> ways;  // vertices of the topology; the weights add up to the tree's
};

struct PackedTree {
  int root = 0;  // GPU
  Flow weight = 0;
  std::vector<TreeEdge> edges;  // away from the root: `from` is the root or an earlier edge's `to`
};

struct TreePacking {
  std::vector<PackedTree> trees;
  Flow root_weight = 0;  // what the trees of one root weigh together
  Rate rate;             // kB/s that a weight of 1 stands for
};

// The topology's GPUs as roots: one, or all at once. The rate reached is root_weight * rate: the broadcast's bound of
// the root; 1/(n-1) of the all-gather's busbw. One GPU needs no trees.
// Errors: invalid_argument for an unknown root; unsupported where a switch gets more or less than it gives and the
// trees therefore cannot be found.
Result<TreePacking> broadcast_trees(const Topology& topology, int root);
Result<TreePacking> all_gather_trees(const Topology& topology);

}  // namespace paceline
