// The ring algorithm (ring.cc) on several rings at once, each of which carries its share of the data.
#pragma once

#include <span>

#include "schedule/cost.h"
#include "schedule/schedule.h"
#include "topology/rings.h"

namespace paceline {

// All-reduce, all-gather or reduce-scatter around rings of the ranks, by their rates.
void write_rings(Schedule& schedule, std::span<const Ring> rings);
// us, of so many rings.
double cost_of_rings(const Problem& problem, const Parameters& parameters, const CostModel& model, int rings);

}  // namespace paceline
