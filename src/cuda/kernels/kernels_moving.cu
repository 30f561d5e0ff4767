// Kernels of short messages that are moved as they are.
#include "cuda/kernels/kernels.cuh"

namespace paceline::cuda {

MovingKernels moving_kernels() {
  return {strip_kernels<void>(), short_kernels<void, deep_stride.strips, false>(),
          short_kernels<void, deep_stride.strips, true>()};
}

}  // namespace paceline::cuda
