// What this build of the library is and what it finds here, as JSON text:
//
//   {"version": "0.1.0", "compiler": "...", "build_type": "Release", "instruction_set": "AVX2",
//    "cuda": {"runtime": "13.0", "devices": [{"name", "memory_bytes", "compute_capability", "multiprocessors"}]}}
//
// "runtime" is null in a build without CUDA; "problem" beside "devices" says why a driver's GPUs cannot be used.
#pragma once

#include <string>

namespace paceline::api {

std::string build_description();

}  // namespace paceline::api
