// The exchange of sends and receives that all go by strips (message_strips.cuh).
//
// The first warp of each block moves no data: it watches those that take long messages, and in the first block it is
// the clerk (clerk.cuh), beside the others.
//
// Time: launch + one store over the link + M/B.
#pragma once

#include "cuda/kernels/parts/message_strips.cuh"

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
  constexpr bool watched = strips != brief_stride.strips;  // no warp has more of a brief one than half a ring
  const bool clerk = threadIdx.x < 32;
  // The next kernel does not wait on the multiprocessors for a long one.
  const bool overlaps = task.strips <= overlapped_strips;
  const std::uint32_t warps = (blockDim.x / 32 - 1) * gridDim.x;
  const auto number_of = [](std::uint32_t warp) { return warp * gridDim.x + blockIdx.x; };
  __shared__ SharedWord taken[message_warps(strips)];
  fetch(task);
  if (watched) {
    if (threadIdx.x < message_warps(strips)) taken[threadIdx.x].clear();
    __syncthreads();
  }
  WarpNumbers numbers;
  MessageWatch watch;
  if (clerk) {
    numbers = WarpNumbers(task);
    if (watched && threadIdx.x < blockDim.x / 32 - 1)
      watch = MessageWatch(task, share_of(task, number_of(threadIdx.x), warps));
  }
  wait_for_kernel_before();
  if (overlaps) let_next_kernel_start();
  if (clerk) {
    numbers.read();
    if (watched) watch.begin();
    if (blockIdx.x == 0) announce(task, numbers);
    move_unread_on(task, numbers);
    if (watched) watch.run(task, taken);
    if (blockIdx.x == 0) compare_calls(task, numbers);
  } else {
    const std::uint32_t warp = number_of(threadIdx.x / 32 - 1);
    move_messages<strips, watched>(task, warp, warps, &taken[threadIdx.x / 32 - 1]);
    copy_to_self(task, warp, warps);
  }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __syncthreads();
  if (!overlaps) let_next_kernel_start();
  if (!clerk) return;
  if (watched) watch.end();
  numbers.move_on_here();
  __syncwarp();
  sign_off(task);
}

}  // namespace paceline::cuda
