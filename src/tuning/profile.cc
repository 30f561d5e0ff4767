#include "tuning/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_fields.h"
#include "tuning/cost_constants.h"

namespace paceline {
namespace {

using nlohmann::json;

Status bad_profile(std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("the profile {}", what));
}

bool has(const CostModel& model, const CostConstant& constant) {
  return constant.in_profiles != nullptr && (constant.told != CostConstant::by_nodes || model.node_ranks > 1);
}

constexpr double most_bytes = 1e15;

Result<CostModel> read_model(const json& object) {
  CostModel model;
  if (object.contains("node_ranks")) {
    if (!is_number(object, "node_ranks", 1, 1e6)) return bad_profile("has no node_ranks from 1 to 1000000");
    model.node_ranks = object["node_ranks"].get<int>();
  }
  for (const CostConstant& constant : cost_constants) {
    if (!has(model, constant)) continue;
    const char* const name = constant.in_profiles;
    if (constant.is_later && !object.contains(name)) {
      model.*constant.field = 0;
      continue;
    }
    const auto [least, most] = constant.quantity.in_profiles;
    if (!is_number(object, name, least, most))
      return bad_profile(fmt::format("has no {} from {} to {}", name, least, most));
    model.*constant.field = object[name].get<double>() / constant.quantity.unit;
  }
  if (!is_number(object, "largest_chunk", 1, most_bytes)) return bad_profile("has no largest_chunk");
  model.largest_chunk = object["largest_chunk"].get<std::size_t>();
  return model;
}

// A row's collective and algorithm; nullptr: this build does not have them, or it goes by a topology, and what it took
// on one says nothing about another.
const Algorithm* algorithm_of(const json& row, Collective& collective) {
  const auto which = collective_named(row["collective"].get<std::string>());
  const Algorithm* algorithm = algorithm_named(row["algorithm"].get<std::string>());
  if (!which || algorithm == nullptr || algorithm->finds != nullptr ||
      std::ranges::find(algorithm->collectives, *which) == algorithm->collectives.end())
    return nullptr;
  collective = *which;
  return algorithm;
}

// Of a measured row or a row of the table; false: what it has is wrong.
bool read_variant_of(const json& row, Variant& variant) {
  if (row.contains("chunk")) {
    if (!is_number(row, "chunk", 1, most_bytes)) return false;
    variant.chunk = row["chunk"].get<std::size_t>();
  }
  if (row.contains("radix")) {
    if (!is_number(row, "radix", 2, 1 << 20)) return false;
    variant.radix = row["radix"].get<int>();
  }
  if (row.contains("protocol")) {
    if (!is_text(row, "protocol")) return false;
    const auto read = read_variant("any protocol=" + row["protocol"].get<std::string>());
    if (!read.ok()) return false;
    variant.protocol = read->variant.protocol;
  }
  return true;
}

void write_variant(json& row, const Variant& variant) {
  if (variant.chunk > 0) row["chunk"] = variant.chunk;
  if (variant.radix > 0) row["radix"] = variant.radix;
  if (variant.protocol != Protocol::automatic) row["protocol"] = name(variant.protocol);
}

Result<std::vector<Curve>> read_curves(const json& rows) {
  std::vector<Curve> curves;
  for (const json& row : rows) {
    if (!row.is_object() || !is_text(row, "collective") || !is_text(row, "algorithm") || !is_list(row, "points"))
      return bad_profile("has a measured row without collective, algorithm and points");
    Curve curve;
    if (!read_variant_of(row, curve.variant))
      return bad_profile("has a measured row with a wrong chunk, radix or protocol");
    for (const json& point : row["points"]) {
      if (!point.is_array() || point.size() != 2 || !point[0].is_number_unsigned() || !point[1].is_number())
        return bad_profile("has a point that is not [bytes, microseconds]");
      const Point read{point[0].get<std::size_t>(), point[1].get<double>()};
      if (!(read.us > 0 && read.us < 1e12) || static_cast<double>(read.bytes) > most_bytes ||
          (!curve.points.empty() && curve.points.back().bytes >= read.bytes))
        return bad_profile("has points that are out of range or order");
      curve.points.push_back(read);
    }
    curve.algorithm = algorithm_of(row, curve.collective);
    if (curve.algorithm != nullptr && !curve.points.empty()) curves.push_back(std::move(curve));
  }
  return curves;
}

Result<std::vector<TableRow>> read_table(const json& rows) {
  std::vector<TableRow> table;
  for (const json& row : rows) {
    if (!row.is_object() || !is_text(row, "collective") || !is_text(row, "algorithm") ||
        !is_number(row, "from", 0, most_bytes) || (row.contains("below") && !is_number(row, "below", 0, most_bytes)))
      return bad_profile("has a table row without collective, algorithm and range");
    TableRow read;
    if (!read_variant_of(row, read.variant))
      return bad_profile("has a table row with a wrong chunk, radix or protocol");
    read.from = row["from"].get<std::size_t>();
    if (row.contains("below")) read.below = row["below"].get<std::size_t>();
    read.algorithm = algorithm_of(row, read.collective);
    if (read.algorithm != nullptr) table.push_back(read);
  }
  return table;
}

Result<Setting> setting_of(const json& object) {
  if (!object.is_object() || !is_text(object, "transport") || !is_number(object, "ranks", 1, 1e6) ||
      !object.contains("model") || !object["model"].is_object() || !is_list(object, "measured") ||
      !is_list(object, "table"))
    return bad_profile("has a setting without transport, ranks, model, measured and table");
  Setting setting;
  setting.transport = object["transport"].get<std::string>();
  setting.ranks = object["ranks"].get<int>();
  const auto model = read_model(object["model"]);
  PACE_TRY(model.status());
  setting.model = *model;
  if (is_number(object, "model_error", 0, 1e9)) setting.model_error = object["model_error"].get<double>();
  auto curves = read_curves(object["measured"]);
  PACE_TRY(curves.status());
  setting.curves = std::move(*curves);
  auto table = read_table(object["table"]);
  PACE_TRY(table.status());
  setting.table = std::move(*table);
  return setting;
}

Result<json> parse(std::string_view text) {
  json parsed = parse_object(text);
  if (parsed.is_discarded()) return bad_profile("is no JSON object");
  return parsed;
}

}  // namespace

Result<Setting> read_setting(std::string_view text) {
  const auto parsed = parse(text);
  PACE_TRY(parsed.status());
  return setting_of(*parsed);
}

Result<Profile> read_profile(std::string_view text) {
  const auto parsed = parse(text);
  PACE_TRY(parsed.status());
  if (!is_number(*parsed, "format", 2, 2)) return bad_profile("is not of format 2");
  if (!is_text(*parsed, "fingerprint") || !is_text(*parsed, "version") || !is_list(*parsed, "settings"))
    return bad_profile("has no fingerprint, version and settings");
  Profile profile;
  profile.fingerprint = (*parsed)["fingerprint"].get<std::string>();
  profile.version = (*parsed)["version"].get<std::string>();
  for (const json& object : (*parsed)["settings"]) {
    auto setting = setting_of(object);
    PACE_TRY(setting.status());
    profile.settings.push_back(std::move(*setting));
  }
  if (parsed->contains("gpus")) {
    auto gpus = read_gpu_settings((*parsed)["gpus"]);
    PACE_TRY(gpus.status());
    profile.gpus = std::move(*gpus);
  }
  return profile;
}

std::string write_setting(const Setting& setting) {
  json model;
  for (const CostConstant& constant : cost_constants)
    if (has(setting.model, constant))
      model[constant.in_profiles] = setting.model.*constant.field * constant.quantity.unit;
  if (setting.model.node_ranks > 1) model["node_ranks"] = setting.model.node_ranks;
  model["largest_chunk"] = setting.model.largest_chunk;
  json measured = json::array();
  for (const Curve& curve : setting.curves) {
    json points = json::array();
    for (const Point& point : curve.points) points.push_back({point.bytes, point.us});
    json row{{"collective", name(curve.collective)}, {"algorithm", curve.algorithm->name}, {"points", points}};
    write_variant(row, curve.variant);
    measured.push_back(std::move(row));
  }
  json table = json::array();
  for (const TableRow& row : setting.table) {
    json written{{"collective", name(row.collective)}, {"from", row.from}, {"algorithm", row.algorithm->name}};
    if (row.below != SIZE_MAX) written["below"] = row.below;
    write_variant(written, row.variant);
    table.push_back(std::move(written));
  }
  return json{{"transport", setting.transport},     {"ranks", setting.ranks}, {"model", model},
              {"model_error", setting.model_error}, {"measured", measured},   {"table", table}}
      .dump(-1, ' ', true, json::error_handler_t::replace);
}

namespace {

// The time at a size, also at one a little longer or shorter than measured ones: between two points times are taken to
// be straight, in logarithms. NaN: too far from what was measured.
double time_at(const Curve& curve, std::size_t bytes) {
  constexpr std::size_t far = 4;  // from one point to the next, as a factor
  const auto above = std::ranges::lower_bound(curve.points, bytes, {}, &Point::bytes);
  if (above != curve.points.end() && above->bytes == bytes) return above->us;
  if (above == curve.points.begin() || above == curve.points.end()) return std::nan("");
  const Point& below = *(above - 1);
  if (below.bytes == 0 || above->bytes > far * below.bytes) return std::nan("");
  const auto log_size = [](std::size_t size) { return std::log(static_cast<double>(size)); };
  const double share = (log_size(bytes) - log_size(below.bytes)) / (log_size(above->bytes) - log_size(below.bytes));
  return below.us * std::pow(above->us / below.us, share);
}

// Another way to run an algorithm is measured at few sizes: at others it takes about what the algorithm takes by
// itself.
double time_near(const std::vector<Curve>& curves, const Curve& curve, std::size_t bytes) {
  const double time = time_at(curve, bytes);
  if (!std::isnan(time)) return time;
  const auto plain = std::ranges::find_if(curves, [&](const Curve& one) {
    return one.collective == curve.collective && one.algorithm == curve.algorithm && one.variant == Variant();
  });
  return plain == curves.end() ? time : time_at(*plain, bytes);
}

// The size between two from which on `later` is faster than `sooner`. Half way where that is not known.
std::size_t crossing(const std::vector<Curve>& curves, const Curve& sooner, const Curve& later, std::size_t low,
                     std::size_t high) {
  const auto gain = [&](std::size_t bytes) {  // of `later`
    return std::log(time_near(curves, sooner, bytes) / time_near(curves, later, bytes));
  };
  const double before = gain(low);
  const double after = gain(high);
  double share = 0.5;
  if (std::isfinite(before) && after > before) share = std::clamp(-before / (after - before), 0.0, 1.0);
  const auto from = static_cast<double>(std::max<std::size_t>(low, 1));
  return std::max(low + 1, static_cast<std::size_t>(from * std::pow(static_cast<double>(high) / from, share)));
}

}  // namespace

std::vector<TableRow> fastest(const std::vector<Curve>& curves) {
  // A change must be worth something: between equals what ran at the next smaller size stays.
  constexpr double worth = 0.97;
  // Of the ways to run an algorithm there are many, so that one of them is easily the luckiest: on 16 CPUs those that
  // promised less than a tenth were slower than the algorithm by itself more often than faster (docs/tuning.md).
  constexpr double worth_of_way = 0.9;
  const auto counted = [&](const Curve& curve, std::size_t bytes) {
    return time_at(curve, bytes) / (curve.variant == Variant() ? 1 : worth_of_way);
  };
  std::map<Collective, std::set<std::size_t>> sizes;
  for (const Curve& curve : curves)
    for (const Point& point : curve.points) sizes[curve.collective].insert(point.bytes);
  std::vector<TableRow> table;
  for (const auto& [collective, measured] : sizes) {
    const Curve* last = nullptr;
    std::size_t before = 0;
    for (const std::size_t bytes : measured) {
      const Curve* best = nullptr;
      double least = std::numeric_limits<double>::infinity();
      for (const Curve& curve : curves) {
        if (curve.collective != collective || !(counted(curve, bytes) < least)) continue;
        least = counted(curve, bytes);
        best = &curve;
      }
      if (last == nullptr || !(worth * counted(*last, bytes) <= least)) {
        const std::size_t from = last == nullptr ? 0 : crossing(curves, *last, *best, before, bytes);
        if (last != nullptr) table.back().below = from;
        last = best;
        table.push_back({collective, from, SIZE_MAX, last->algorithm, last->variant});
      }
      before = bytes;
    }
    // Far beyond what was measured the formulas know better.
    if (last != nullptr) table.back().below = 2 * before + 1;
  }
  return table;
}

}  // namespace paceline
