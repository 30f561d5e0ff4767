// The CUDA engine of a build without CUDA: none, and the reason.
#include "cuda/gpu_engine.h"

namespace paceline::cuda {

Result<std::unique_ptr<GpuEngine>> GpuEngine::create(int, int, double, std::span<const GpuSetting>, const Gather&) {
  return Status(Code::unsupported, "this build of Paceline has no CUDA (PACELINE_CUDA=OFF)");
}

}  // namespace paceline::cuda
