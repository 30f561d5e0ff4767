// What a prediction along packed trees (algorithms/packed_trees.h) needs besides the schedule: where the messages go,
// in which turns they may travel, and how fast they could be.
#pragma once

#include <span>
#include <vector>

#include "algorithms/tree_turns.h"
#include "schedule/problem.h"
#include "topology/arborescences.h"
#include "topology/way_finder.h"

namespace paceline {

// The finder gets the ways of all pairs between which trees send. Where both packings of an all-reduce use a pair, its
// ways are those of the larger use (all_reduce_trees()).
void give_ways(std::span<const TreePacking> packings, const Topology& topology, WayFinder& finder);
// In the order in which they are worth trying.
std::vector<TreeTiming> tree_timings(Collective which);
// us, at the rates of the trees, one packing after the other; `bytes_of_root`: what the trees of one root carry.
double bound_of(std::span<const TreePacking> packings, double bytes_of_root);

}  // namespace paceline
