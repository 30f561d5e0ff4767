// What would run, what there is, and traces.

#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "algorithms/table.h"
#include "api/build.h"
#include "api/handle.h"
#include "base/configuration.h"
#include "base/fixed_text.h"
#include "cuda/driver/device.h"

namespace paceline::api {
namespace {

std::string algorithms_text() {
  auto rows = nlohmann::json::array();
  for (const Algorithm& algorithm : algorithms()) {
    auto collectives = nlohmann::json::array();
    for (Collective which : algorithm.collectives) collectives.push_back(std::string(name(which)));
    rows.push_back({{"name", std::string(algorithm.name)},
                    {"sentence", std::string(algorithm.sentence)},
                    {"collectives", collectives},
                    {"measured", algorithm.measured},
                    {"radix", algorithm.has_radix},
                    {"topology", algorithm.finds != nullptr}});
  }
  return rows.dump();
}

std::string configuration_text() {
  auto rows = nlohmann::json::array();
  for (const ConfigurationRow& row : configuration_rows())
    rows.push_back({{"variable", std::string(row.variable)},
                    {"type", std::string(row.type)},
                    {"default", std::string(row.fallback)},
                    {"help", std::string(row.help)}});
  return rows.dump();
}

Status explain(Communicator& communicator, const char* collective, std::size_t count, paceDataType_t type,
               paceRedOp_t op, int root, pacePlanInfo_t* info) {
  PACE_TRY(need(collective, "collective"));
  PACE_TRY(need(info, "info"));
  const auto which = collective_named(collective);
  if (!which || is_message(*which))
    return Status(Code::invalid_argument, fmt::format("there is no collective '{}'", collective));
  if (type < 0 || type >= paceNumTypes)
    return Status(Code::invalid_argument, fmt::format("there is no data type {}", static_cast<int>(type)));
  Request request;
  request.which = *which;
  request.count = count;
  request.type = static_cast<DataType>(type);
  request.op = op < 0 ? Operation::sum : op >= paceNumOps ? Operation::premulsum : static_cast<Operation>(op);
  request.root = is_rooted(*which) ? root : 0;
  if (request.root < 0 || request.root >= communicator.size())
    return Status(Code::invalid_argument, fmt::format("root {} is not among the ranks", root));
  if (!fits(request, communicator.size()))
    return Status(Code::invalid_argument, fmt::format("{} elements are more than memory can hold", count));
  auto plan = communicator.explain(request);
  if (!plan.ok()) return plan.status();
  put(info->algorithm, plan->algorithm);
  put(info->transport, plan->transport);
  info->chunkBytes = plan->chunk_bytes;
  info->channels = plan->channels;
  info->radix = plan->radix;
  info->predictedMicroseconds = plan->predicted_us;
  put(info->protocol, name(plan->protocol));
  return {};
}

// Empty: calls on GPU memory are none of this build's, or of this machine's.
std::string gpus_text() {
  if (!built_with_cuda()) return {};
  const auto devices = device_count();
  return devices.ok() && *devices > 0 ? nlohmann::json({{"devices", *devices}}).dump() : std::string();
}

}  // namespace
}  // namespace paceline::api

using namespace paceline;
using namespace paceline::api;

extern "C" {

paceResult_t paceExplain(paceComm_t comm, const char* collective, size_t count, paceDataType_t type, paceRedOp_t op,
                         int root, pacePlanInfo_t* info) {
  return entry(comm, [&] {
    return inside(*comm, [&](Communicator& c) { return explain(c, collective, count, type, op, root, info); });
  });
}

paceResult_t paceCommSetAlgorithm(paceComm_t comm, const char* algorithm) {
  return entry(comm, [&] {
    return inside(*comm, [&](Communicator& c) { return c.set_algorithm(algorithm == nullptr ? "" : algorithm); });
  });
}

const char* paceDescribe(const char* which) try {
  if (which == nullptr) return nullptr;
  // Each is made when it is first asked for, since only some look for GPUs, and never destroyed, as all that the
  // process's exit handlers may ask for.
  if (std::strcmp(which, "algorithms") == 0) {
    static const auto* const algorithm_table = new std::string(algorithms_text());
    return algorithm_table->c_str();
  }
  if (std::strcmp(which, "configuration") == 0) {
    static const auto* const configuration_table = new std::string(configuration_text());
    return configuration_table->c_str();
  }
  if (std::strcmp(which, "build") == 0) {
    static const auto* const build = new std::string(build_description());
    return build->c_str();
  }
  if (std::strcmp(which, "cuda") == 0) {
    static const auto* const gpus = new std::string(gpus_text());
    return gpus->empty() ? nullptr : gpus->c_str();
  }
  return nullptr;
} catch (...) {
  return nullptr;
}

paceResult_t paceTraceStart(paceComm_t comm) {
  return entry(comm, [&] { return inside(*comm, [](Communicator& c) { return c.start_trace(); }); });
}

paceResult_t paceTraceStop(paceComm_t comm, const char* path) {
  return entry(comm, [&]() -> Status {
    PACE_TRY(need(path, "path"));
    return inside(*comm, [&](Communicator& c) { return c.stop_trace(path); });
  });
}

}  // extern "C"
