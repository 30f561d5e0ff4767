// Calibration and tuned tables: what `paceline tune` measures becomes a setting of a profile, and is used.

#include <nlohmann/json.hpp>

#include "api/handle.h"
#include "base/json_fields.h"
#include "base/of_thread.h"
#include "tuning/fit.h"
#include "tuning/tuning_file.h"

namespace paceline::api {
namespace {

using nlohmann::json;

// The measured times of a request, made a setting of the communicator's.
Result<std::string> setting_of(const Communicator& communicator, const char* measured, bool fits) {
  Setting setting;
  setting.transport = communicator.tuned_transport();
  setting.ranks = communicator.size();
  setting.model = communicator.cost_model(DataType::float32);
  // The same reader as of files: a setting whose rows are the caller's.
  json written = json::parse(write_setting(setting));
  written["measured"] = parse_json(measured);
  auto read = read_setting(written.dump(-1, ' ', true, json::error_handler_t::replace));
  PACE_TRY(read.status());
  if (fits) {
    // Where links differ no constants explain all algorithms' times, and those that come nearest choose bad chunks.
    if (!communicator.simulates()) read->model = fit(setting.model, setting.ranks, read->curves);
    read->model_error = median_error(read->model, setting.model, setting.ranks, read->curves);
  } else {
    read->table = fastest(read->curves);
  }
  return write_setting(*read);
}

}  // namespace
}  // namespace paceline::api

using namespace paceline;
using namespace paceline::api;

extern "C" {

paceResult_t paceTune(paceComm_t comm, const char* measured, int fits, const char** setting) {
  return entry(comm, [&]() -> Status {
    PACE_TRY(need(measured, "measured"));
    PACE_TRY(need(setting, "setting"));
    *setting = nullptr;
    return inside(*comm, [&](Communicator& c) -> Status {
      auto made = setting_of(c, measured, fits != 0);
      PACE_TRY(made.status());
      auto& kept = of_thread<std::string, struct LastSetting>();
      kept = std::move(*made);
      *setting = kept.c_str();
      return {};
    });
  });
}

paceResult_t paceCommSetTuning(paceComm_t comm, const char* profile) {
  return entry(comm, [&] {
    return inside(*comm, [&](Communicator& c) { return c.set_tuning(profile == nullptr ? "" : profile); });
  });
}

paceResult_t paceCheckTuning(const char* profile) {
  return entry([&]() -> Status {
    PACE_TRY(need(profile, "profile"));
    std::string reason = reason_against(profile, machine_fingerprint(), library_version());
    return reason.empty() ? Status() : Status(Code::invalid_argument, std::move(reason));
  });
}

paceResult_t paceCommGpuTable(paceComm_t comm, const char** table) {
  return entry(comm, [&]() -> Status {
    PACE_TRY(need(table, "table"));
    *table = nullptr;
    return inside(*comm, [&](Communicator& c) -> Status {
      auto text = c.gpu_table();
      PACE_TRY(text.status());
      auto& kept = of_thread<std::string, struct LastGpuTable>();
      kept = std::move(*text);
      *table = kept.c_str();
      return {};
    });
  });
}

const char* paceTuningFile(void) try {
  static const auto* const description = new std::string(
      json{{"path", tuning_path(true)}, {"fingerprint", machine_fingerprint()}, {"version", library_version()}}.dump(
          -1, ' ', true, json::error_handler_t::replace));
  return description->c_str();
} catch (...) {
  return nullptr;
}

}  // extern "C"
