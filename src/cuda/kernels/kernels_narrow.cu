// Kernels of the 8-bit floats.
#include "cuda/kernels/kernels.cuh"

namespace paceline::cuda {

template Kernels kernels<DataType::float8e4m3>();
template Kernels kernels<DataType::float8e5m2>();

}  // namespace paceline::cuda
