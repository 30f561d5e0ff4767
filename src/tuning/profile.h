// What `paceline tune` has found out on a machine, as a file keeps it: one setting for each transport and number of
// ranks. The communicator reads it through Tuned (tuned.h).
//
//   {"format": 2, "fingerprint": "...", "version": "0.1.0", "settings": [
//     {"transport": "shm", "ranks": 2,
//      "model": {"start_us": 0.4, "step_us": 0.05, "bandwidth_gbs": 11.2, ..., "largest_chunk": 131072},
//      "model_error": 0.12,
//      "measured": [{"collective": "all_reduce", "algorithm": "ring", "points": [[8, 1.6], [64, 1.7], ...]}, ...],
//      "table": [{"collective": "all_reduce", "from": 0, "below": 32768, "algorithm": "one_shot"}, ...]}],
//    "gpus": [...]}
//
// What ran in another way than by the algorithm's own choice has "chunk", "radix" or "protocol", too (variant.h).
//
// "gpus", which may be missing, are the tables of calls on GPU memory (gpu_setting.h).
//
// Sizes are bytes of the call's count, float32; times are microseconds. docs/tuning.md says what each field is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/table.h"
#include "base/status.h"
#include "schedule/cost.h"
#include "tuning/gpu_setting.h"
#include "tuning/variant.h"

namespace paceline {

struct Point {
  std::size_t bytes = 0;
  double us = 0;
};

// The measured times of one algorithm, run in one way, by size.
struct Curve {
  Collective collective = Collective::all_reduce;
  const Algorithm* algorithm = nullptr;
  std::vector<Point> points;  // sizes ascend
  Variant variant = {};
};

// From `from` bytes on and below `below` bytes this algorithm, run in this way, was the fastest.
struct TableRow {
  Collective collective = Collective::all_reduce;
  std::size_t from = 0;
  std::size_t below = SIZE_MAX;
  const Algorithm* algorithm = nullptr;
  Variant variant = {};
};

struct Setting {
  std::string transport;  // shm, tcp, shm+tcp, loopback (TCP inside one machine)
  int ranks = 0;
  CostModel model;         // fitted
  double model_error = 0;  // median of |predicted / measured - 1| by the model alone
  std::vector<Curve> curves;
  std::vector<TableRow> table;
};

struct Profile {
  std::string fingerprint;
  std::string version;
  std::vector<Setting> settings;
  std::vector<GpuSetting> gpus = {};
};

// Errors (invalid_argument): no JSON, another format, a field that is missing, of another type or out of its range.
// Algorithms and collectives that this build does not have are passed over.
Result<Profile> read_profile(std::string_view json);
Result<Setting> read_setting(std::string_view json);
std::string write_setting(const Setting& setting);

// The table of a setting's curves.
std::vector<TableRow> fastest(const std::vector<Curve>& curves);

}  // namespace paceline
