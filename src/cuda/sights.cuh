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

// What was told last, for even or odd messages. Of message `number` if that is its number.
struct Sight {
  std::uint32_t number;
  std::byte* address;
};
template <class Task>
__device__ Sight look_at_sight(const Task& task, int source, std::uint32_t number, int which) {
  const auto* const here =
      reinterpret_cast<const uint4*>(words(task.windows[task.rank]).sights[source][blockIdx.x][number & 1]);
  const uint4 found = peek(here + which);
  return {found.y, reinterpret_cast<std::byte*>(static_cast<std::uint64_t>(found.x) |
                                                static_cast<std::uint64_t>(found.z) << 32)};
}

}  // namespace paceline::cuda
