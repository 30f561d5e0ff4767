#include "api/topology_request.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "topology/presets.h"
#include "tuning/prediction.h"

namespace paceline::api {
namespace {

Status wrong(std::string message) { return Status(Code::invalid_argument, std::move(message)); }

}  // namespace

Result<Topology> topology_of(const nlohmann::json& request) {
  if (!request.contains("preset")) return wrong("no topology is named: give a preset");
  if (!request["preset"].is_string()) return wrong("preset must be a text");
  const auto nodes = request.value("nodes", nlohmann::json(0));
  if (!nodes.is_number_integer() || nodes < 0)
    return wrong(fmt::format("nodes must be a whole number, not {}", nodes.dump()));
  return preset(request["preset"].get<std::string>(), nodes > INT32_MAX ? INT32_MAX : nodes.get<int>());
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
