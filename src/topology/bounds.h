// How fast a collective among all GPUs of a topology can be at most: no schedule on its links is faster for long
// messages. Of an all-reduce it is the most of a reduce-scatter and then an all-gather, not of every schedule.
//
// Broadcast: everything that the root has must cross every cut between it and another GPU, so its rate is at most the
// smallest maximum flow from the root to a GPU; arborescences reach it (Edmonds).
//
// All-gather: the shards of all GPUs on one side of a cut must cross it. With x the rate at which each of n GPUs gives
// out its shard, x <= capacity(cut) / (GPUs on its side), for every cut that leaves out some GPU. The smallest ratio is
// found by Newton's iteration: a flow from a source that feeds each GPU at x shows a cut that is too small for x, and x
// falls to what that cut allows, until none is too small. busbw is (n-1) x. Arborescences reach it as well.
// Reduce-scatter is all-gather backwards. All-reduce is a reduce-scatter and then an all-gather, one after the other:
// what published figures are of, and rings reach. What a schedule gains that has both under way at once, or that folds
// whole messages along trees to few roots, is not in it. Where GPUs have unequal links such schedules can be faster:
// GPUs 0, 3 and 4 of a DGX-1V have a bound of 50 GB/s, and packed trees whose two passes overlap get 67. No all-reduce
// at all is faster than this: put the vertices into k groups with a GPU each; that all groups know the sum takes 2
// (k-1) messages between them, so algbw is at most (capacity between the groups) / (2 (k-1)). Of the parts of a DGX-1V
// that have published figures this gives the same, but for GPUs 0 to 3: 112.5 GB/s of busbw, where 100 is published.
//
// Source: Zhao et al., "ForestColl: Throughput-optimal collective communications on heterogeneous network fabrics"
// (2024), sections 4 and 5.
#pragma once

#include <vector>

#include "topology/graph.h"
#include "topology/max_flow.h"

namespace paceline {

// Bandwidths as integers, in kB/s: 1 GB/s = 10^6.
inline constexpr double units_per_gbs = 1e6;
Flow units(double gbs);

// A rate in kB/s, exactly. The denominator is 0 where nothing has to move (one GPU).
struct Rate {
  Flow numerator = 0;
  Flow denominator = 1;

  [[nodiscard]] double gbs() const {
    return static_cast<double>(numerator) / static_cast<double>(denominator) / units_per_gbs;
  }
  bool operator==(const Rate&) const = default;
};

struct Bounds {
  std::vector<Rate> broadcast_from;  // algbw, for each GPU as root
  Rate broadcast;                    // over the worst root
  int worst_root = 0;                // GPU
  Rate all_gather;                   // busbw, as the next two
  Rate reduce_scatter;
  Rate all_reduce;  // reduce-scatter, then all-gather
};

// Of a valid topology, as select() gives it.
Bounds throughput_bounds(const Topology& topology);

// The largest rate at which every GPU can give out its shard at once; `backwards`: every link turned round, so that it
// is the largest at which every GPU can take in its block of a reduce-scatter.
Rate shard_rate(const Topology& topology, bool backwards = false);

}  // namespace paceline
