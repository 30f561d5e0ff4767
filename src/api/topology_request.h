// The topology that a JSON request names, and the GPUs in it that ranks run on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/handle.h"
#include "base/of_thread.h"
#include "topology/graph.h"

namespace paceline::api {

// By "preset" and "nodes", "file" (text of a cluster file) or "nccl_xml"; this machine's where there is none of them.
Result<Topology> topology_of(const nlohmann::json& request);
// By "gpus"; without it, all of them in the order of "placement" ("gpu" if there is none).
Result<std::vector<int>> gpus_of(const nlohmann::json& request, const Topology& topology);

// What paceTopology and pacePredict do with a request. Each keeps a thread's last answer for it, beside the other's.
template <Result<std::string> (*answer_to)(const char* request)>
paceResult_t give_answer(const char* request, const char** answer) {
  return entry([&]() -> Status {
    PACE_TRY(need(request, "request"));
    PACE_TRY(need(answer, "answer"));
    *answer = nullptr;
    Result<std::string> found = answer_to(request);
    PACE_TRY(found.status());
    auto& kept = of_thread<std::string, struct LastAnswer>();  // another type in each instance of this template
    kept = std::move(*found);
    *answer = kept.c_str();
    return {};
  });
}

}  // namespace paceline::api
