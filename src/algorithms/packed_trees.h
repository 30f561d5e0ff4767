// Broadcast, all-gather, reduce-scatter and all-reduce along packed trees: at the bound of the topology
// (topology/arborescences.h).
//
// Outward, a chunk goes from a tree's root along its edges. Inward, it is an all-gather of the topology with every link
// turned round, backwards: each rank folds what comes from its children, in the order in which it comes, into its own
// operand and sends the sum on, up to the root. The first fold of a chunk at a rank reads the rank's input; the sum
// lies in the output where that has room for it (an all-reduce, a root), else in scratch, in as many places as chunks
// of the tree are under way at once. An all-reduce is a reduce-scatter and then an all-gather, each along its own
// trees: all chunks inward and then all outward, or each chunk outward as soon as it is folded.
//
// Time: (k + h) P with k chunks of each tree, h periods on the longest way, and P = (largest chunk) / (its tree's
// rate); of an all-reduce, the sum of both, or less where its chunks overlap. When the messages travel: tree_turns.h.
// Source: Zhao et al., "ForestColl" (2024); turns and slots are ours.
#pragma once

#include <span>

#include "algorithms/tree_turns.h"
#include "schedule/schedule.h"
#include "topology/arborescences.h"

namespace paceline {

// Writes the collective of the schedule's problem; rank r is GPU r of the packings' topology. One packing, of
// broadcast_trees() from the problem's root, all_gather_trees() or reduce_scatter_trees(); for an all-reduce the two of
// all_reduce_trees().
// Errors (invalid_argument): another collective, trees of other ranks, of another root or the other way round.
Status write_packed_trees(Schedule& schedule, std::span<const TreePacking> packings, const TreeTiming& timing = {});

inline Status write_packed_trees(Schedule& schedule, const TreePacking& packing, const TreeTiming& timing = {}) {
  return write_packed_trees(schedule, std::span(&packing, 1), timing);
}

}  // namespace paceline
