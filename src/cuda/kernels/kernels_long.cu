// Kernels of the 64-bit numbers.
#include "cuda/kernels/kernels.cuh"

namespace paceline::cuda {

template Kernels kernels<DataType::int64>();
template Kernels kernels<DataType::uint64>();
template Kernels kernels<DataType::float64>();

}  // namespace paceline::cuda
