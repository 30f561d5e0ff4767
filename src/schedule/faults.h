// What the proof can see without running a schedule: faults of one step, and of the channels of one rank.
#pragma once

#include <string>

#include "schedule/schedule.h"

namespace paceline {

// What is wrong with a step, whatever the others do; empty if nothing.
std::string fault_of(const Schedule& schedule, int rank, const Step& step);

// Nothing orders the steps of two channels, so they may share only what both read. What they share beyond that; empty
// if nothing.
std::string fault_of_channels(Schedule& schedule, int rank);

}  // namespace paceline
