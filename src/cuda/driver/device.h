// The GPUs of this machine, as far as the CUDA runtime shows them.
//
// The runtime is linked statically and looks for the driver at its first call, so the library loads and works on a
// machine without GPU, driver or libcuda: it has no devices there.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace paceline {

struct Device {
  int number = 0;  // the CUDA runtime's, 0 .. device_count() - 1
  std::string name;
  std::size_t memory_bytes = 0;
  int compute_major = 0;  // compute capability, 9.0 for Hopper
  int compute_minor = 0;
  int multiprocessors = 0;
};

// Whether this build has the CUDA engine (CMake option PACELINE_CUDA).
bool built_with_cuda();
// The CUDA runtime linked into this build, "13.0"; empty without CUDA.
std::string cuda_runtime_version();
// How many GPUs there are; 0 without a driver. An error where a driver is there and does not serve, or
// Code::unsupported in a build without CUDA.
Result<int> device_count();
Result<Device> device(int number);
// The calling thread's.
Result<int> current_device();
// Make it the calling thread's current GPU, with a context.
Status use_device(int number);

}  // namespace paceline
