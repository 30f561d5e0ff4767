// What NVIDIA's driver says of its GPUs and their NVLinks.
//
// NVML comes with the driver, so it is loaded at run time; its few functions are declared in nvml.cc. A machine without
// it has no GPU that could be used either.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace paceline {

struct NvmlGpu {
  std::string bus_id;  // "0000:3b:00.0"
  int compute_capability = 0;
  struct Nvlinks {
    std::string target;  // bus id of the other end
    bool nvswitch = false;
    int count = 0;
  };
  std::vector<Nvlinks> nvlinks = {};  // active ones, by target
};

// The GPUs that this process may see, in NVML's order (by bus id); nothing where there is no NVML.
std::optional<std::vector<NvmlGpu>> nvml_gpus();

// NVML's "00000000:3B:00.0" as the kernel and NCCL write it: "0000:3b:00.0".
std::string kernel_bus_id(std::string text);

}  // namespace paceline
