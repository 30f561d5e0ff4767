// Calls on GPU memory: by the CUDA engine where there can be one, else through host memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/origin.h"
#include "bootstrap/session.h"
#include "comm/kernel_watch.h"
#include "cuda/gpu_engine.h"

namespace paceline {

class DeviceCalls {
 public:
  // members: of the communicator. Nothing is made yet.
  DeviceCalls(const std::vector<Member>& members, int rank, double timeout, Membership& membership);
  ~DeviceCalls();

  // Collective. Where the GPUs do not reach each other, or have no room for their ranks' kernels, calls go through host
  // memory: no error. measured: the profile's tables.
  Status connect(std::span<const GpuSetting> measured, const Gather& gather);
  // The engine for the calls from now on.
  void use(std::unique_ptr<cuda::GpuEngine> engine);
  // nullptr: through host memory.
  [[nodiscard]] cuda::GpuEngine* engine() const { return engine_.get(); }
  // The reason for that.
  [[nodiscard]] const std::string& why_none() const { return why_none_; }

  // Ok unless the engine has to refuse a buffer, which is in the memory of another GPU than its own.
  [[nodiscard]] Status check_memory(const Request& request, void* stream) const;

  // Waits for the kernels. What one gave up for is told to all ranks, and that they do not end. Nothing in a forked
  // child, whose parent's they are: CUDA does not work there, and its pinned memory is not there.
  void finish();
  // The reason that a kernel gave for giving up, told to all ranks; ok if none has.
  Status failure() const;

 private:
  std::vector<Member> members_;
  int rank_;
  double timeout_;
  Membership& membership_;
  const Origin origin_;
  std::string why_none_;
  std::unique_ptr<cuda::GpuEngine> engine_;
  std::unique_ptr<KernelWatch> watch_;  // of the engine; nullptr: there is none
};

}  // namespace paceline
