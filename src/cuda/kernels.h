// The kernels of each data type, as the runtime launches them.
#pragma once

#include "base/types.h"

namespace paceline::cuda {

struct Kernels {
  const void* small;
  const void* medium;
  const void* large;
  const void* walk;  // of a schedule (walk.cuh)
};
Kernels kernels_of(DataType type);
// Of sends and receives: it copies bytes.
const void* message_kernel();

// Of a block of the large kernel, bytes.
extern const int large_shared_bytes;
extern const int large_threads;

}  // namespace paceline::cuda
