#include "tuning/gpu_setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/json_fields.h"

namespace paceline {
namespace {

using nlohmann::json;

constexpr double most_bytes = 1e15;

Status bad_table(std::string_view what) {
  return Status(Code::invalid_argument, fmt::format("the GPU table {}", what));
}

std::optional<GpuFamily> family_named(std::string_view text) {
  for (const GpuFamily family :
       {GpuFamily::brief, GpuFamily::wide, GpuFamily::streaming, GpuFamily::deep, GpuFamily::large})
    if (name(family) == text) return family;
  return std::nullopt;
}

// A whole number, if there is one; false: something else stands there.
template <class Number>
bool read_optional(const json& row, const char* key, double most, Number& into) {
  const auto found = row.find(key);
  if (found == row.end()) return true;
  if (!found->is_number_integer() || found->get<double>() < 0 || found->get<double>() > most) return false;
  into = found->get<Number>();
  return true;
}

bool read_flag(const json& row, const char* key, bool& into) {
  const auto found = row.find(key);
  if (found == row.end()) return true;
  if (!found->is_boolean()) return false;
  into = found->get<bool>();
  return true;
}

// The collective is checked by the caller.
Result<GpuRow> row_of(const json& object, Collective collective) {
  GpuRow row;
  row.collective = collective;
  if (!object.contains("from") || !read_optional(object, "from", most_bytes, row.from))
    return bad_table("has a row without the size from which on it counts");
  const auto family = is_text(object, "family") ? family_named(object["family"].get<std::string>()) : std::nullopt;
  if (!family) return bad_table("has a row without a family: brief, wide, streaming, deep or large");
  row.way.family = *family;
  std::uint8_t steps = 1;
  if (!read_optional(object, "steps", 2, steps) || steps == 0) return bad_table("has a row of neither 1 nor 2 steps");
  row.way.two_steps = steps == 2;
  if (!read_flag(object, "direct", row.way.direct)) return bad_table("has a row with a wrong direct");
  if (!read_flag(object, "pushed", row.way.pushed)) return bad_table("has a row with a wrong pushed");
  if (!read_flag(object, "passed", row.way.passed)) return bad_table("has a row with a wrong passed");
  if (!read_flag(object, "engines", row.way.engines)) return bad_table("has a row with a wrong engines");
  if (!read_optional(object, "lanes", UINT8_MAX, row.way.lanes) ||
      !read_optional(object, "blocks", UINT8_MAX, row.way.blocks) ||
      !read_optional(object, "chunk", UINT32_MAX, row.way.chunk))
    return bad_table("has a row with wrong lanes, blocks or chunk");
  return row;
}

Result<GpuSetting> setting_of(const json& object) {
  if (!object.is_object() || !is_text(object, "gpu") || !is_text(object, "link") ||
      !is_number(object, "ranks", 1, 1e6) || !is_list(object, "table"))
    return bad_table("has no gpu, link, ranks and table");
  GpuSetting setting;
  setting.machine = {object["gpu"].get<std::string>(), object["link"].get<std::string>(), object["ranks"].get<int>()};
  if (!read_optional(object, "blocks", UINT8_MAX, setting.machine.blocks)) return bad_table("has wrong blocks");
  std::array<std::optional<std::uint64_t>, collective_count> last;
  for (const json& found : object["table"]) {
    if (!found.is_object() || !is_text(found, "collective")) return bad_table("has a row without a collective");
    const auto collective = collective_named(found["collective"].get<std::string>());
    const auto number = static_cast<std::size_t>(collective.value_or(Collective::send));
    const auto row = row_of(found, collective.value_or(Collective::send));
    PACE_TRY(row.status());
    if (number >= last.size()) continue;
    if (last[number] ? row->from <= *last[number] : row->from != 0)
      return bad_table("has rows of a collective that do not begin at 0 and ascend");
    last[number] = row->from;
    setting.rows.push_back(*row);
  }
  return setting;
}

const GpuSetting* setting_for(std::span<const GpuSetting> settings, const GpuMachine& machine) {
  const GpuSetting* best = nullptr;
  for (const GpuSetting& setting : settings) {
    const bool linked = machine.link.empty() || setting.machine.link == machine.link;
    if (!linked || setting.machine.gpu != machine.gpu || setting.machine.ranks != machine.ranks) continue;
    // The most blocks that are not too many, else the fewest.
    const auto worth = [&](const GpuSetting& one) {
      return one.machine.blocks <= machine.blocks ? one.machine.blocks : -one.machine.blocks;
    };
    if (best == nullptr || worth(setting) > worth(*best)) best = &setting;
  }
  return best;
}

}  // namespace

Result<std::vector<GpuSetting>> read_gpu_settings(const json& list) {
  if (!list.is_array()) return bad_table("stands in no list");
  std::vector<GpuSetting> settings;
  for (const json& object : list) {
    auto setting = setting_of(object);
    PACE_TRY(setting.status());
    settings.push_back(std::move(*setting));
  }
  return settings;
}

json write_gpu_setting(const GpuSetting& setting) {
  json table = json::array();
  for (const GpuRow& row : setting.rows) {
    json written{{"collective", name(row.collective)}, {"from", row.from}, {"family", name(row.way.family)}};
    if (row.way.two_steps) written["steps"] = 2;
    if (row.way.direct) written["direct"] = true;
    if (row.way.pushed) written["pushed"] = true;
    if (row.way.passed) written["passed"] = true;
    if (row.way.engines) written["engines"] = true;
    if (row.way.lanes > 0) written["lanes"] = row.way.lanes;
    if (row.way.blocks > 0) written["blocks"] = row.way.blocks;
    if (row.way.chunk > 0) written["chunk"] = row.way.chunk;
    table.push_back(std::move(written));
  }
  const GpuMachine& machine = setting.machine;
  return {{"gpu", machine.gpu},
          {"link", machine.link},
          {"ranks", machine.ranks},
          {"blocks", machine.blocks},
          {"table", table}};
}

const std::vector<GpuSetting>& shipped_gpu_settings() {
  // The tests read the text: it is right.
  static const auto* const settings = [] {
    const json parsed = parse_object(shipped_gpu_tables());
    auto read = read_gpu_settings(parsed.is_discarded() ? json() : parsed.value("gpus", json()));
    return new std::vector<GpuSetting>(read.ok() ? std::move(*read) : std::vector<GpuSetting>());
  }();
  return *settings;
}

GpuChoice choose_gpu_table(std::span<const GpuSetting> measured, std::span<const GpuSetting> shipped,
                           const GpuMachine& machine) {
  GpuChoice choice{GpuTable::rules(machine.ranks), "rules"};
  if (const GpuSetting* setting = setting_for(shipped, machine)) {
    choice.table.replace(setting->rows);
    choice.source = "shipped";
  }
  if (const GpuSetting* setting = setting_for(measured, machine)) {
    choice.table.replace(setting->rows);
    choice.source = "measured";
  }
  return choice;
}

std::string disagreement(std::span<const GpuVote> votes) {
  const auto other = std::ranges::find_if(votes, [&](const GpuVote& vote) { return vote.digest != votes[0].digest; });
  if (other == votes.end()) return "";
  return fmt::format(
      "the ranks' tables of GPU collectives differ (rank 0 has one for {}, rank {} for {}): all go by the built-in "
      "rules. Use GPUs of one kind, and the same profile on every rank",
      votes[0].gpu, other - votes.begin(), other->gpu);
}

}  // namespace paceline
