// How ranks tell each other, within a kernel, at which addresses they see each other's memory: block by block, in a
// packet with the message's number as its flag. 0: not at all.
#pragma once

#include "cuda/clerk.cuh"

namespace paceline::cuda {

// Of message `number` to `peer`. which: 0 an input, or what is offered; 1 an output.
template <class Task>
__device__ void tell_sight(const Task& task, int peer, std::uint32_t number, int which, std::uint64_t address) {
  auto* const there = reinterpret_cast<uint4*>(words(task.windows[peer]).sights[task.rank][blockIdx.x][number & 1]);
  post(there + which,
       uint4{static_cast<std::uint32_t>(address), number, static_cast<std::uint32_t>(address >> 32), number});
}

// Of message `number` from `source`: whether it has come.
template <class Task>
__device__ bool find_sight(const Task& task, int source, std::uint32_t number, int which, std::byte*& address) {
  const auto* const here =
      reinterpret_cast<const uint4*>(words(task.windows[task.rank]).sights[source][blockIdx.x][number & 1]);
  const uint4 found = peek(here + which);
  address =
      reinterpret_cast<std::byte*>(static_cast<std::uint64_t>(found.x) | static_cast<std::uint64_t>(found.z) << 32);
  return found.y == number && found.w == number;
}

}  // namespace paceline::cuda
