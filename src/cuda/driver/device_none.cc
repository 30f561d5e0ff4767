// The GPUs of a build without CUDA: none, and the reason.
#include "cuda/driver/device.h"

namespace paceline {
namespace {

Status built_without() { return {Code::unsupported, "this build of Paceline has no CUDA (PACELINE_CUDA=OFF)"}; }

}  // namespace

bool built_with_cuda() { return false; }
std::string cuda_runtime_version() { return {}; }
Result<int> device_count() { return built_without(); }
Result<Device> device(int) { return built_without(); }
Result<int> current_device() { return built_without(); }
Status use_device(int) { return built_without(); }

}  // namespace paceline
