#include "tuning/cost_model_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/wrong.h"
#include "tuning/cost_constants.h"

namespace paceline {
namespace {

constexpr const char* largest_chunk = "largest_chunk";
constexpr const char* node_ranks = "node_ranks";
constexpr const char* homes = "homes";

}  // namespace

Result<CostModel> read_cost_model(const nlohmann::json& object) {
  if (!object.is_object()) return wrong("the cost model is no JSON object");
  CostModel model;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_number()) return wrong(fmt::format("the cost model's '{}' is no number", key));
    const double number = value.get<double>();
    if (key == node_ranks || key == homes) {
      const int least = key == node_ranks ? 1 : 0;
      if (!(number >= least && number <= 1e6 && number == std::floor(number)))
        return wrong(
            fmt::format("the cost model's {} is {}: it must be a whole number from {} to 1e6", key, number, least));
      (key == node_ranks ? model.node_ranks : model.homes) = static_cast<int>(number);
      continue;
    }
    if (key == largest_chunk) {
      if (!(number >= 64 && number <= 1e15))
        return wrong(fmt::format("the cost model's {} is {}: it must be from 64 to 1e15", key, number));
      model.largest_chunk = static_cast<std::size_t>(number);
      continue;
    }
    const auto* constant = std::ranges::find(cost_constants, std::string_view(key), &CostConstant::name);
    if (constant == std::end(cost_constants)) return wrong(fmt::format("a cost model has no '{}'", key));
    const auto [least, most] = constant->quantity.in_requests;
    if (!(number >= least && number <= most))
      return wrong(fmt::format("the cost model's {} is {}: it must be from {} to {}", key, number, least, most));
    model.*(constant->field) = number;
  }
  if (object.contains("start") && !object.contains("chunk_start")) model.chunk_start = model.start;
  return model;
}

}  // namespace paceline
