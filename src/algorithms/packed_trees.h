// Broadcast and all-gather along packed trees: at the bound of the topology (topology/arborescences.h).
//
// A tree carries a part of the data in proportion to its weight, cut into as many chunks as every other tree's. Time is
// cut into periods; in each a tree edge carries one chunk, so that the trees that share an edge take turns and fill the
// period. A rank that gets a chunk of a tree before its turn to pass it on comes passes it on in the same period, else
// in the next. The steps of a rank are its sends and receives in the order of these times.
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

// Writes the broadcast or all-gather of the schedule's problem; rank r is GPU r of the packing's topology. A packing of
// broadcast_trees() has the problem's root.
// Errors (invalid_argument): another collective, trees of other ranks or of another root.
Status write_packed_trees(Schedule& schedule, const TreePacking& packing);

}  // namespace paceline
