// Kernels of the floats in common use.
#include "cuda/kernels/kernels.cuh"

namespace paceline::cuda {

template Kernels kernels<DataType::float32>();
template Kernels kernels<DataType::float16>();
template Kernels kernels<DataType::bfloat16>();

}  // namespace paceline::cuda
