// How ranks tell each other, within a kernel, at which addresses they see each other's memory: block by block, in a
// packet with the message's number as its flag. 0: not at all.
#pragma once

#include "cuda/kernels/parts/clerk.cuh"

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
  const std::uint32_t whole = found.y == found.w ? found.y : number - 1;  // else it has come in part
  return {whole, reinterpret_cast<std::byte*>(static_cast<std::uint64_t>(found.x) | static_cast<std::uint64_t>(found.z)
                                                                                        << 32)};
}

// By a thread that has loaded from where it saw the other's memory: who has given up meanwhile has taken the sight
// back, and its memory may have been its program's again. That is no success.
template <class Task>
__device__ void check_sight(const Task& task, const Expected& message) {
  const Sight sight = look_at_sight(task, message.source, message.number, 0);
  if (sight.number == message.number && sight.address == nullptr)
    raise_alarm(task, AlarmCause::gave_up, message.source, message.number, message.count, Announcement{});
}

}  // namespace paceline::cuda
