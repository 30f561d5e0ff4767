// A call on GPU memory as one on host memory: what it reads is copied there, what it writes is copied back.
#pragma once

#include "comm/arena.h"
#include "cuda/copy.h"
#include "schedule/request.h"

namespace paceline {

class HostCopy {
 public:
  // stream: the call's cudaStream_t.
  HostCopy(const Request& request, void* stream, int rank, int ranks) : request_(request), stream_(stream) {
    const Problem problem = problem_of(request, ranks);
    const std::size_t element = size_of(request.type);
    input_bytes_ = request.which == Collective::recv ? 0 : input_elements(problem, rank) * element;
    output_bytes_ = request.which == Collective::send ? 0 : output_elements(problem, rank) * element;
  }

  // The call on the copies, which are made when this returns.
  Result<Request> load() {
    PACE_TRY(cuda::refuse_capture(stream_));
    Request on_host = request_;
    auto input = input_.reserve(input_bytes_);
    PACE_TRY(input.status());
    auto output = output_.reserve(output_bytes_);
    PACE_TRY(output.status());
    if (input_bytes_ != 0) PACE_TRY(cuda::copy(*input, request_.send, input_bytes_, stream_));
    on_host.send = *input;
    on_host.recv = *output;
    return on_host;
  }
  // After the call.
  Status store() {
    if (output_bytes_ == 0) return {};
    auto output = output_.reserve(output_bytes_);
    return output.ok() ? cuda::copy(request_.recv, *output, output_bytes_, stream_) : output.status();
  }

 private:
  Request request_;
  void* stream_;
  std::size_t input_bytes_ = 0;
  std::size_t output_bytes_ = 0;
  Arena input_;
  Arena output_;
};

}  // namespace paceline
