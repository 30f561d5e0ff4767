// The cost model of a topology: what the algorithms' own choices (chunk, radix) are made with before a simulation.
#pragma once

#include "schedule/cost.h"
#include "schedule/simulator.h"

namespace paceline {

// For ranks on these GPUs. The bandwidth is what the slowest message gets when every rank sends to the next one.
CostModel cost_model_of(WayFinder& finder, std::span<const int> gpus, const Machine& machine,
                        std::size_t element_bytes);

// What gets out of the ranks' nodes and into them through the NICs, bytes per us, both ways at once.
struct NodeRates {
  double alone = 0;   // where one rank sends
  double shared = 0;  // of each, where all ranks do
  double pcie = 0;    // from a GPU's memory into its host's, over its own link; as `alone` where it has none
};
// Where all ranks are on one node, and nothing leaves it: by the cost model's bandwidth.
NodeRates node_rates(WayFinder& finder, std::span<const int> gpus, const Machine& machine, const CostModel& model);

}  // namespace paceline
