#include "cuda/kernels/kernels.h"

#include "cuda/kernels/exchange_direct.cuh"
#include "cuda/kernels/exchange_large.cuh"
#include "cuda/kernels/exchange_messages.cuh"

namespace paceline::cuda {

template <DataType type>
Kernels kernels();  // kernels_*.cu

const int large_shared_bytes = sizeof(LargeShared);
const int large_shared_bytes_without_chunks = offsetof(LargeShared, chunks);
const int large_block = large_threads;
const int large_block_with_strips = large_threads + strip_threads;

__global__ void make_blank(std::uint64_t* words, std::uint64_t count) {
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    words[i] = blank;
}
const void* blank_kernel() { return reinterpret_cast<const void*>(&make_blank); }

// All addresses and lengths are multiples of 16 bytes.
__global__ void __launch_bounds__(direct_threads, 1)
    copy_own(const std::byte* from, std::byte* to, std::uint64_t bytes) {
  constexpr int unroll = 8;
  constexpr std::uint64_t step = direct_threads * 16;
#pragma unroll 1
  for (std::uint64_t at = blockIdx.x * step * unroll + threadIdx.x * 16; at < bytes; at += gridDim.x * step * unroll) {
    ulonglong2 pairs[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (at + u * step < bytes) pairs[u] = *reinterpret_cast<const ulonglong2*>(from + at + u * step);
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (at + u * step < bytes) *reinterpret_cast<ulonglong2*>(to + at + u * step) = pairs[u];
  }
}
const void* copy_kernel() { return reinterpret_cast<const void*>(&copy_own); }

MessageKernels message_kernels() {
  return {reinterpret_cast<const void*>(&exchange_messages<brief_stride.strips>),
          reinterpret_cast<const void*>(&exchange_messages<paired_stride.strips>),
          reinterpret_cast<const void*>(&exchange_large<ElementOf<DataType::uint8>::type, MessageTask>),
          reinterpret_cast<const void*>(&exchange_large<ElementOf<DataType::uint8>::type, MessageTask, true>)};
}

Kernels kernels_of(DataType type) {
  switch (type) {
    case DataType::int8: return kernels<DataType::int8>();
    case DataType::uint8: return kernels<DataType::uint8>();
    case DataType::int32: return kernels<DataType::int32>();
    case DataType::uint32: return kernels<DataType::uint32>();
    case DataType::int64: return kernels<DataType::int64>();
    case DataType::uint64: return kernels<DataType::uint64>();
    case DataType::float16: return kernels<DataType::float16>();
    case DataType::float32: return kernels<DataType::float32>();
    case DataType::float64: return kernels<DataType::float64>();
    case DataType::bfloat16: return kernels<DataType::bfloat16>();
    case DataType::float8e4m3: return kernels<DataType::float8e4m3>();
    case DataType::float8e5m2: return kernels<DataType::float8e5m2>();
  }
  return kernels<DataType::uint8>();
}

}  // namespace paceline::cuda
