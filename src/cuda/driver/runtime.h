// Calls of the CUDA runtime: their errors as Status, and captures around them.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/status.h"

namespace paceline::cuda {

inline Status failure(const std::string& what, cudaError_t error) {
  (void)cudaGetLastError();  // the runtime keeps it; a later call of the user's would find it
  return Status(Code::cuda, what + ": " + cudaGetErrorString(error));
}

#define PACE_CUDA(what, call)                                                          \
  do {                                                                                 \
    if (cudaError_t error = (call); error != cudaSuccess) return failure(what, error); \
  } while (false)

// Whether CUDA has refused something since a stream is captured.
inline bool is_of_capture(cudaError_t error) {
  return error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent;
}

// The error of a question about a stream. Code::invalid_usage: it is none, or a capture forbids its use.
inline Status unusable(const std::string& what, cudaError_t error) {
  const bool of_usage =
      is_of_capture(error) || error == cudaErrorInvalidResourceHandle || error == cudaErrorInvalidValue;
  Status why = failure(what, error);
  return of_usage ? Status(Code::invalid_usage, why.message()) : why;
}

// Whether what is put on the stream is captured into a graph. Code::invalid_usage also where the program has spoiled
// the capture: what would be launched then fails for that alone.
inline Status ask_for_capture(cudaStream_t stream, bool& captured) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaError_t error = cudaStreamIsCapturing(stream, &status);
  captured = status != cudaStreamCaptureStatusNone;
  if (error == cudaSuccess && status == cudaStreamCaptureStatusInvalidated) error = cudaErrorStreamCaptureInvalidated;
  if (error == cudaSuccess) return {};
  return unusable("asking for the state of a stream", error);
}

// Allocations and copies of ours go on while some thread captures a graph.
class OutsideOfCapture {
 public:
  OutsideOfCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~OutsideOfCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  OutsideOfCapture(const OutsideOfCapture&) = delete;
  OutsideOfCapture& operator=(const OutsideOfCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace paceline::cuda
