// The proof of a schedule: symbolic execution of all ranks' steps.
//
// Every element is a set of contributions (rank, input element), with the order in which they were folded. The steps
// run under the rules of schedule.h with the fewest messages under way that the rules allow, so a schedule that passes
// cannot block with more. It fails where
//   - a rank ends with anything but exactly the contributions that the collective asks for, each once;
//   - two ranks of an all-reduce end with different fold orders for one element (the bits would differ);
//   - steps wait for each other in a circle, or messages stay behind, or lengths of a message differ on its two sides;
//   - a region lies outside of its buffer, or a step reads what nothing has written;
//   - two channels of a rank touch the same data, one of them writing.
// In place, input and output are one memory.
#pragma once

#include "base/status.h"
#include "schedule/schedule.h"

namespace paceline {

// Ok, or an invalid_argument whose message names the rank, the step and what is wrong.
Status prove(Schedule& schedule);

}  // namespace paceline
