// The proof of a schedule: symbolic execution of all ranks' steps.
//
// Every element is a set of contributions (rank, input element), with the order in which they were folded. The steps
// run under the rules of schedule.h with the fewest messages under way that the rules allow: a channel takes a message
// only while the one that is capacity(n) before it has been taken by all its receivers, as in a ring of slots. A
// schedule that passes cannot block with more, and whether it blocks does not depend on who runs when: a step that can
// be taken stays so until it is. The proof fails where
//   - a rank ends with anything but exactly the contributions that the collective asks for, each once;
//   - two ranks of an all-reduce end with different fold orders for one element (the bits would differ);
//   - steps wait for each other in a circle, or messages stay behind, or lengths of a message differ on its two sides;
//   - a region lies outside of its buffer, a step reads what nothing has written, or moves more than the chunk;
//   - two channels of a rank touch the same data, one of them writing;
//   - the input is written, or read as input after the output has overwritten it. In place, input and output are one
//     memory; still a reduction must read its own contribution as input, for there operators like premulsum apply.
// A barrier has no data: every rank's end must come after every rank's start, by the messages alone.
#pragma once

#include "base/status.h"
#include "schedule/schedule.h"

namespace paceline {

// Ok, or an invalid_argument whose message names the rank, the step and what is wrong.
Status prove(Schedule& schedule);

}  // namespace paceline
