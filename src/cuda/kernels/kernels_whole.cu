// Kernels of the integers up to 32 bits.
#include "cuda/kernels/kernels.cuh"

namespace paceline::cuda {

template Kernels kernels<DataType::int8>();
template Kernels kernels<DataType::uint8>();
template Kernels kernels<DataType::int32>();
template Kernels kernels<DataType::uint32>();

}  // namespace paceline::cuda
