// The pipelined chain (pipelined_chain.cc) along an order that another row chooses.
#pragma once

#include <vector>

#include "schedule/cost.h"
#include "schedule/schedule.h"

namespace paceline {

// Broadcast or reduce; the root comes first.
void write_pipelined_chain(Schedule& schedule, const std::vector<int>& order);
// The best chunk.
Parameters pipelined_chain_parameters(const Problem& problem, const CostModel& model);
double pipelined_chain_cost(const Problem& problem, const Parameters& parameters, const CostModel& model);  // us

}  // namespace paceline
