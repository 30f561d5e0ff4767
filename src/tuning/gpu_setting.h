// Tables of GPU collectives as files have them, and which one a communicator goes by.
//
//   {"gpu": "NVIDIA H200", "link": "nvlink", "ranks": 2, "blocks": 32, "table": [
//     {"collective": "all_reduce", "from": 0, "family": "brief", "lanes": 4},
//     {"collective": "all_reduce", "from": 1482910, "family": "streaming", "steps": 2, "blocks": 24, "direct": true}]}
//
// `from` is bytes of the call's count. A field that a row does not have is as GpuWay has it by itself; what else stands
// there, as the times that were measured, is for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tuning/gpu_table.h"

namespace paceline {

// What a table was measured on.
struct GpuMachine {
  std::string gpu;   // its name
  std::string link;  // between the GPUs: "nvlink", "pcie"; empty: cannot be told
  int ranks = 0;
  int blocks = 32;  // of a kernel that moves short messages, at most (PACELINE_GPU_BLOCKS)
};

struct GpuSetting {
  GpuMachine machine;
  std::vector<GpuRow> rows;  // as GpuTable::replace takes them
};

// Errors (invalid_argument): a field that is missing, of another type or out of its range. Collectives that this build
// does not have are passed over.
Result<std::vector<GpuSetting>> read_gpu_settings(const nlohmann::json& list);
nlohmann::json write_gpu_setting(const GpuSetting& setting);

// Those that come with the library (gpu_tables.json), re-measured by `paceline tune --device cuda`.
const std::vector<GpuSetting>& shipped_gpu_settings();
// Their text, for tests.
std::string_view shipped_gpu_tables();

struct GpuChoice {
  GpuTable table;
  std::string_view source;  // "measured" on this machine, "shipped", "rules"
};
// Collectives that a table lacks go by the next of the three. Where no table is for so many blocks, one for fewer
// counts.
GpuChoice choose_gpu_table(std::span<const GpuSetting> measured, std::span<const GpuSetting> shipped,
                           const GpuMachine& machine);

// What a rank tells the others of its choice.
struct GpuVote {
  std::string gpu;
  std::uint64_t digest = 0;
};
// Empty: all ranks have the same table. Else why they cannot go by theirs, for people.
std::string disagreement(std::span<const GpuVote> votes);

}  // namespace paceline
