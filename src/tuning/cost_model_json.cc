#include "tuning/cost_model_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/wrong.h"

namespace paceline {
namespace {

struct Member {
  const char* name;
  double CostModel::*value;
  double least;  // inclusive
  double most;
};

constexpr double most_rate = 1e15;
constexpr double least_rate = 1e-6;
constexpr Member members[] = {
    {"call", &CostModel::call, 0, 1e9},
    {"start", &CostModel::start, 0, 1e9},
    {"chunk_start", &CostModel::chunk_start, 0, 1e9},
    {"step", &CostModel::step, 0, 1e9},
    {"partner", &CostModel::partner, 0, 1e9},
    {"board", &CostModel::board, 0, 1e9},
    {"receiver", &CostModel::receiver, 0, 1e9},
    {"bandwidth", &CostModel::bandwidth, least_rate, most_rate},
    {"reduce_bandwidth", &CostModel::reduce_bandwidth, least_rate, most_rate},
    {"write_bandwidth", &CostModel::write_bandwidth, least_rate, most_rate},
    {"copy_bandwidth", &CostModel::copy_bandwidth, least_rate, most_rate},
    {"duplex", &CostModel::duplex, 0, 1},
    {"sharing", &CostModel::sharing, 0, 1e6},
    {"switching", &CostModel::switching, 0, 1e9},
    {"multicast_share", &CostModel::multicast_share, 0, 1},
    {"common_share", &CostModel::common_share, 0, 10},
    {"passing_share", &CostModel::passing_share, 0, 1},
    {"beside_share", &CostModel::beside_share, 0, 1},
    {"node_start", &CostModel::node_start, 0, 1e9},
    {"cable", &CostModel::cable, least_rate, most_rate},
    {"stream", &CostModel::stream, least_rate, most_rate},
};
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
    const auto* member = std::find_if(std::begin(members), std::end(members),
                                      [name = std::string_view(key)](const Member& m) { return name == m.name; });
    if (member == std::end(members)) return wrong(fmt::format("a cost model has no '{}'", key));
    if (!(number >= member->least && number <= member->most))
      return wrong(
          fmt::format("the cost model's {} is {}: it must be from {} to {}", key, number, member->least, member->most));
    model.*(member->value) = number;
  }
  if (object.contains("start") && !object.contains("chunk_start")) model.chunk_start = model.start;
  return model;
}

}  // namespace paceline
