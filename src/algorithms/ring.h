// The ring algorithm (ring.cc) on several rings at once, each of which carries its share of the data.
#pragma once

#include <span>

#include "schedule/cost.h"
#include "schedule/schedule.h"
#include "topology/rings.h"

namespace paceline {

// All-reduce, all-gather or reduce-scatter around rings of the ranks, by their rates.
void write_rings(Schedule& schedule, std::span<const Ring> rings);
// us. `shares`: what each ring carries of all data, together 1; `cable`: what passes a node's cable, as parts of what
// each rank sends.
double cost_of_rings(const Problem& problem, const Parameters& parameters, const CostModel& model,
                     std::span<const double> shares, Crossing cable);

}  // namespace paceline
