#include "api/build.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/reduction.h"
#include "cuda/driver/device.h"
#include "paceline/paceline.h"

namespace paceline::api {
namespace {

#if defined(__clang__)
constexpr const char* compiler = "clang " __clang_version__;
#else
constexpr const char* compiler = "gcc " __VERSION__;
#endif

nlohmann::json describe(const Device& device) {
  return {{"name", device.name},
          {"memory_bytes", device.memory_bytes},
          {"compute_capability", fmt::format("{}.{}", device.compute_major, device.compute_minor)},
          {"multiprocessors", device.multiprocessors}};
}

nlohmann::json describe_cuda() {
  nlohmann::json cuda = {{"runtime", nullptr}, {"devices", nlohmann::json::array()}};
  if (!built_with_cuda()) return cuda;
  cuda["runtime"] = cuda_runtime_version();
  Result<int> count = device_count();
  if (!count.ok()) {
    cuda["problem"] = count.status().message();
    return cuda;
  }
  for (int number = 0; number < *count; ++number) {
    if (Result<Device> found = device(number); found.ok())
      cuda["devices"].push_back(describe(*found));
    else
      cuda["problem"] = found.status().message();
  }
  return cuda;
}

}  // namespace

std::string build_description() {
  nlohmann::json build = {{"version", fmt::format("{}.{}.{}", PACE_MAJOR, PACE_MINOR, PACE_PATCH)},
                          {"compiler", compiler},
                          {"build_type", PACELINE_BUILD_TYPE},
                          {"instruction_set", instruction_set()},
                          {"cuda", describe_cuda()}};
  return build.dump();
}

}  // namespace paceline::api
