// The cost model of a topology: what the algorithms' own choices (chunk, radix) are made with before a simulation.
#pragma once

#include "schedule/cost.h"
#include "schedule/simulator.h"

namespace paceline {

// For ranks on these GPUs. The bandwidth is what the slowest message gets when every rank sends to the next one.
CostModel cost_model_of(WayFinder& finder, std::span<const int> gpus, const Machine& machine,
                        std::size_t element_bytes);

}  // namespace paceline
