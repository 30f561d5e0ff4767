// The topology that a JSON request names, and the GPUs in it that ranks run on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "topology/graph.h"

namespace paceline::api {

// By "preset" and "nodes", "file" (text of a cluster file) or "nccl_xml"; this machine's where there is none of them.
Result<Topology> topology_of(const nlohmann::json& request);
// By "gpus"; without it, all of them in the order of "placement" ("gpu" if there is none).
Result<std::vector<int>> gpus_of(const nlohmann::json& request, const Topology& topology);

}  // namespace paceline::api
