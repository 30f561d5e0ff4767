// Copies between a GPU's memory and the host's, done when they return.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace paceline::cuda {

// In the order of `stream` (a cudaStream_t; nullptr: the default one of the memory's GPU).
Status copy(void* to, const void* from, std::size_t bytes, void* stream);
// Code::invalid_usage while a graph is captured, which can hold no such copies.
Status refuse_capture(void* stream);

}  // namespace paceline::cuda
