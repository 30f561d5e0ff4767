#include "cuda/driver/copy.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/driver/driver.h"
#include "cuda/driver/runtime.h"

namespace paceline::cuda {

Status refuse_capture(void* stream) {
  bool captured = false;
  PACE_TRY(ask_for_capture(static_cast<cudaStream_t>(stream), captured));
  if (!captured) return {};
  return Status(Code::invalid_usage,
                "the ranks' calls on GPU memory go through host memory (PACELINE_LOG=info says why), so they cannot be "
                "captured into a graph");
}

Status copy(void* to, const void* from, std::size_t bytes, void* stream) {
  const OnDevice here(std::max(device_of(to), device_of(from)));
  auto* const on = static_cast<cudaStream_t>(stream);
  PACE_CUDA("copying between GPU and host", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on));
  PACE_CUDA("copying between GPU and host", cudaStreamSynchronize(on));
  return {};
}

}  // namespace paceline::cuda
