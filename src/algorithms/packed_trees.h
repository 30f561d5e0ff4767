// Broadcast and all-gather along packed trees: at the bound of the topology (topology/arborescences.h).
//
// A tree carries a part of the data in proportion to its weight, cut into as many chunks as every other tree's. Time is
// cut into periods; in each a tree edge carries one chunk, so that the trees that share an edge take turns and fill the
// period. A rank passes a chunk on at its turn in the same period if it has it by then, with some slack, else in a
// later one. The steps of a rank are its sends and receives in the order of these times.
//
// A rank may have capacity(n) messages under way, counted from the oldest. So that a long message does not hold up many
// short ones, messages are cut at the borders of equal slots of the period; where that is not enough, the oldest
// message is taken early.
//
// Time: (k + h) P with k chunks of each tree, h periods on the longest way, and P = (largest chunk) / (its tree's
// rate). Source: Zhao et al., "ForestColl" (2024); turns and slots are ours.
#pragma once

#include "schedule/schedule.h"
#include "topology/arborescences.h"

namespace paceline {

// How the trees take turns. Messages come a little later than the bandwidth alone says; without slack that delay would
// be handed round and grow from period to period. But a chunk that waits is under way for longer; trees that alternate
// between two channels may have twice as many under way.
struct TreeTiming {
  double slack = 0;  // periods between the end of a message and what waits for it
  int channels = 1;  // 1 or 2
};

// Writes the broadcast or all-gather of the schedule's problem; rank r is GPU r of the packing's topology. A packing of
// broadcast_trees() has the problem's root.
// Errors (invalid_argument): another collective, trees of other ranks or of another root.
Status write_packed_trees(Schedule& schedule, const TreePacking& packing, const TreeTiming& timing = {});

}  // namespace paceline
