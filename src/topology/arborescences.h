// Trees that use all the bandwidth there is: broadcast, all-gather and reduce-scatter at the rate of bounds.h.
//
// A broadcast sends one part of its message along each of several trees from the root (arborescences: all edges point
// away from it), an all-gather one part of each shard along each of several trees from its GPU. A reduce-scatter folds
// each block along trees to its GPU: those of an all-gather where every link is turned round. Trees together load no
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

#include <cstddef>
#include <vector>

#include "topology/bounds.h"
#include "topology/edge_splitting.h"
#include "topology/graph.h"

namespace paceline {

// Packing takes memory with the square of a topology's vertices and time with their cube: about a minute for so many.
// Beyond them callers leave trees out, and rings.
inline constexpr std::size_t most_vertices_for_trees = 2000;

struct TreeEdge {
  int from = 0;  // GPUs
  int to = 0;
  std::vector<Way> ways;  // vertices of the topology, as the data goes; the weights add up to the tree's
};

struct PackedTree {
  int root = 0;  // GPU
  Flow weight = 0;
  std::vector<TreeEdge> edges;  // away from the root: `from` is the root or an earlier edge's `to`
};

struct TreePacking {
  std::vector<PackedTree> trees;
  bool inward = false;   // the data goes to the roots: from each edge's `to` to its `from`
  Flow root_weight = 0;  // what the trees of one root weigh together
  Rate rate;             // kB/s that a weight of 1 stands for
};

// The topology's GPUs as roots: one, or all at once. The rate reached is root_weight * rate: the broadcast's bound of
// the root; 1/(n-1) of the busbw of the two others. One GPU needs no trees.
// Errors: invalid_argument for an unknown root; unsupported where a switch gets more or less than it gives and the
// trees therefore cannot be found.
Result<TreePacking> broadcast_trees(const Topology& topology, int root);
Result<TreePacking> all_gather_trees(const Topology& topology);
Result<TreePacking> reduce_scatter_trees(const Topology& topology);
// Those of a reduce-scatter and those of an all-gather. Where the two are equally fast and the topology allows it, what
// GPUs send to each other takes the same ways in both: of two uses of a pair, the smaller takes a part of the larger's.
Result<std::vector<TreePacking>> all_reduce_trees(const Topology& topology);

}  // namespace paceline
