// A stream of a call's own, for what goes on beside the rest of it, in a graph too.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "cuda/driver/runtime.h"

namespace paceline::cuda {

// On the GPU that is current when it is made.
class SideStream {
 public:
  static Result<std::unique_ptr<SideStream>> make() {
    std::unique_ptr<SideStream> made(new SideStream);
    PACE_CUDA("making a stream beside a call's", cudaStreamCreateWithFlags(&made->stream_, cudaStreamNonBlocking));
    PACE_CUDA("making an event for a call", cudaEventCreateWithFlags(&made->event_, cudaEventDisableTiming));
    return made;
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
  SideStream() = default;
  Status order(cudaStream_t before, cudaStream_t after) {
    PACE_CUDA("ordering two streams", cudaEventRecord(event_, before));
    PACE_CUDA("ordering two streams", cudaStreamWaitEvent(after, event_, 0));
    return {};
  }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

}  // namespace paceline::cuda
