// Where the real NCCL is: PACELINE_NCCL_LIBRARY; else one that the process has loaded; else next to torch, JAX, CuPy or
// Paceline in a Python environment (nvidia/nccl/lib); else in a run path of the program or of a library that it has
// loaded (conda's and Spack's way: as we have NCCL's name, the loader looks for it no more); else on the loader's path.
#pragma once

#include <string>
#include <vector>

namespace paceline::nccl {

struct Found {
  std::vector<std::string> paths;  // absolute, the best first; empty: none
  std::string why;                 // then, with the places looked at
};

Found find_real();

// Those of the files that are there and are not this library, each once, in their order.
Found those_there(const std::vector<std::string>& files);

// Whether the path is this library's own file.
bool is_ourselves(const std::string& path);
// This library's file.
std::string own_path();

}  // namespace paceline::nccl
