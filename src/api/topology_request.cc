#include "api/topology_request.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/wrong.h"
#include "topology/detect.h"
#include "topology/nccl_xml.h"
#include "topology/presets.h"
#include "topology/topology_text.h"
#include "tuning/prediction/prediction.h"

namespace paceline::api {

Result<Topology> topology_of(const nlohmann::json& request) {
  const auto text = [&](const char* key) { return request[key].get<std::string>(); };
  for (const char* key : {"preset", "file", "nccl_xml"})
    if (request.contains(key) && !request[key].is_string()) return wrong(fmt::format("{} must be a text", key));
  const auto nodes = request.value("nodes", nlohmann::json(0));
  if (!nodes.is_number_integer() || nodes < 0)
    return wrong(fmt::format("nodes must be a whole number, not {}", nodes.dump()));
  if (request.contains("preset")) return preset(text("preset"), nodes > INT32_MAX ? INT32_MAX : nodes.get<int>());
  if (request.contains("file")) return read_topology(text("file"));
  if (request.contains("nccl_xml")) return read_nccl_topology(text("nccl_xml"));
  return detect_topology();
}

Result<std::vector<int>> gpus_of(const nlohmann::json& request, const Topology& topology) {
  if (!request.contains("gpus")) {
    const auto by = request.value("placement", nlohmann::json("gpu"));
    if (!by.is_string()) return wrong("placement must be a text");
    return placement(topology, by.get<std::string>());
  }
  if (request.contains("placement")) return wrong("either gpus or placement, not both");
  if (!request["gpus"].is_array()) return wrong("gpus must be a list of numbers");
  std::vector<int> gpus;
  for (const auto& gpu : request["gpus"]) {
    if (!gpu.is_number_integer()) return wrong("gpus must be a list of numbers");
    const auto number = gpu.get<std::int64_t>();
    gpus.push_back(number < 0 || number > INT32_MAX ? -1 : static_cast<int>(number));
  }
  return gpus;
}

}  // namespace paceline::api
