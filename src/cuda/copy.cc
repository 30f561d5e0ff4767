#include "cuda/copy.h"

#include <cuda_runtime_api.h>

#include <string>

namespace paceline::cuda {

Status copy(void* to, const void* from, std::size_t bytes, void* stream) {
  auto* const on = static_cast<cudaStream_t>(stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(on, &capture);
  if (error == cudaSuccess && capture != cudaStreamCaptureStatusNone)
    return Status(Code::invalid_usage,
                  "the ranks' GPUs do not reach each other, so their calls go through host memory and cannot be "
                  "captured into a graph");
  if (error == cudaSuccess) error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on);
  if (error == cudaSuccess) error = cudaStreamSynchronize(on);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return Status(Code::cuda, std::string("copying between GPU and host: ") + cudaGetErrorString(error));
}

}  // namespace paceline::cuda
