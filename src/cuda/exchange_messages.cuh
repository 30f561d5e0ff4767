// The exchange of sends and receives that all go by strips (message_strips.cuh).
//
// The first warp of each block moves no data: in the first block it is the clerk (clerk.cuh), beside the others.
//
// Time: launch + one store over the link + M/B.
#pragma once

#include "cuda/message_strips.cuh"

namespace paceline::cuda {

// What a rank sends to itself.
__device__ inline void copy_to_self(const MessageTask& task, std::uint32_t warp, std::uint32_t warps) {
  const auto bytes = static_cast<std::uint32_t>(task.own_bytes);
#pragma unroll 1
  for (std::uint32_t at = (warp * 32 + threadIdx.x % 32) * 16; at < bytes; at += warps * strip_bytes)
    store_pair(task.target + at, load_pair(task.own + at, bytes - at, task.alignment), bytes - at, task.alignment);
}

// Of a block at most. (nvcc loses launch bounds that are calls of constants alone.)
template <int strips>
inline constexpr int message_threads = (message_warps(strips) + 1) * 32;

template <int strips>
__global__ void __launch_bounds__(message_threads<strips>, 1)
    exchange_messages(const __grid_constant__ MessageTask task) {
  const bool clerk = threadIdx.x < 32;
  fetch(task);
  WarpNumbers numbers;
  if (clerk) numbers = WarpNumbers(task);
  wait_for_kernel_before();
  let_next_kernel_start();
  if (clerk) {
    numbers.read();
    if (blockIdx.x == 0) {
      announce(task, numbers);
      compare_calls(task, numbers);
    }
    move_unread_on(task, numbers);
  } else {
    const std::uint32_t warp = (threadIdx.x / 32 - 1) * gridDim.x + blockIdx.x;
    const std::uint32_t warps = (blockDim.x / 32 - 1) * gridDim.x;
    move_messages<strips>(task, warp, warps);
    copy_to_self(task, warp, warps);
  }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __syncthreads();
  if (!clerk) return;
  numbers.move_on_here();
  __syncwarp();
  sign_off(task);
}

}  // namespace paceline::cuda
