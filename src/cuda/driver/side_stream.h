// A stream of a call's own, for what goes on beside the rest of it, in a graph too.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/driver/runtime.h"

namespace paceline::cuda {

// On the GPU that is current when it is made.
class SideStream {
 public:
  SideStream() {
    if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess) stream_ = nullptr;
    if (cudaEventCreateWithFlags(&event_, cudaEventDisableTiming) != cudaSuccess) event_ = nullptr;
    (void)cudaGetLastError();
  }
  ~SideStream() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  // What comes here follows what has come on `from`.
  Status fork(cudaStream_t from) { return order(from, stream_); }
  // What comes on `into` follows what has come here.
  Status join(cudaStream_t into) { return order(stream_, into); }

 private:
  Status order(cudaStream_t before, cudaStream_t after) {
    PACE_CUDA("ordering two streams", cudaEventRecord(event_, before));
    PACE_CUDA("ordering two streams", cudaStreamWaitEvent(after, event_, 0));
    return {};
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

}  // namespace paceline::cuda
