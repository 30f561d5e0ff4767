// Long messages between two ranks without a copy on the way: the sender offers its piece where it lies, and the
// receiver loads it from there. If the receiver does not see it, it comes through the window, in chunks; the receiver
// learns which from the offer. Either way it tells the sender, block by block, when it is done with the offer.
//
// A rank loads what is offered in the order in which the offers come, so that no sender waits for another.
#pragma once

#include "cuda/sights.cuh"
#include "cuda/taking.cuh"

namespace paceline::cuda {

// A warp of each block.
__device__ inline void make_offers(const MessageTask& task, const WarpNumbers& numbers) {
  const int peer = static_cast<int>(threadIdx.x) % 32;
  if ((task.offers_to >> peer & 1) != 0) tell_sight(task, peer, numbers.given() + 1, 0, task.offers[peer]);
}

// A warp waits until some of the offers of `left` are here; bit by rank. None: there was an alarm.
__device__ inline std::uint32_t await_offers(const MessageTask& task, LargeShared& shared, std::uint32_t number,
                                             std::uint32_t left) {
  const int source = static_cast<int>(threadIdx.x) % 32;
  const bool waits = (left >> source & 1) != 0;
  const Expected message = expected(task, waits ? source : task.rank, number);
  Patience patience(task);
#pragma unroll 1
  for (;;) {
    std::byte* address = nullptr;
    const bool found = waits && find_sight(task, source, number, 0, address);
    if (found) shared.offered[source] = address;
    if (const std::uint32_t come = __ballot_sync(0xffffffff, found); come != 0) {
      fence_system();  // the pieces are as they were when they were offered
      return come;
    }
    if (__any_sync(0xffffffff, waits && !patience.more(message))) return 0;
  }
}

// By all who take, before anything else of long messages.
template <class Element>
__device__ void load_what_is_offered(const MessageTask& task, LargeShared& shared, const WarpNumbers& numbers,
                                     const Group& group) {
  const auto together = [] { asm volatile("bar.sync 6, %0;" ::"n"(lanes_in_block * group_threads) : "memory"); };
  const bool leads = group.lane == 0 && group.thread < 32;
  constexpr std::uint32_t tile = 16 << 10;  // what a group moves at once
  const std::uint64_t lane = first_lane() + static_cast<std::uint32_t>(group.lane);
#pragma unroll 1
  for (std::uint32_t left = task.offers_from; left != 0;) {
    if (leads) {
      const std::uint32_t come = await_offers(task, shared, numbers.taken() + 1, left);
      if (group.thread == 0) shared.come = come;
    }
    together();
    const std::uint32_t come = shared.come;
    if (come == 0) return;
#pragma unroll 1
    for (std::uint32_t rest = come; rest != 0; rest &= rest - 1) {
      const int source = __ffs(static_cast<int>(rest)) - 1;
      const std::byte* const from = shared.offered[source];
      const Piece& piece = task.takes[source];
      if (from == nullptr) continue;
#pragma unroll 1
      for (std::uint64_t at = lane * tile; at < piece.bytes; at += std::uint64_t{gridDim.x} * lanes_in_block * tile)
        copy_chunk<Element>(task, group, piece.data + at, from + at,
                            static_cast<std::uint32_t>(min(piece.bytes - at, std::uint64_t{tile})), false);
    }
    together();
    if (leads && (come >> group.thread & 1) != 0) {
      fence_system();  // after all loads
      post(&words(task.windows[group.thread]).loaded[task.rank][blockIdx.x], numbers.taken() + 1);
      if (blockIdx.x == 0 && shared.offered[group.thread] != nullptr)
        atomicAdd(&words(task.windows[task.rank]).direct_calls, 1ull);
    }
    left &= ~come;
  }
}

// The first warp of each block, at the end: until then the pieces must stay as they are.
__device__ inline void await_loads(const MessageTask& task, const WarpNumbers& numbers) {
  const int peer = static_cast<int>(threadIdx.x) % 32;
  if ((task.offers_to >> peer & 1) == 0) return;
  WindowWords& mine = words(task.windows[task.rank]);
  if (blockIdx.x == 0 && task.offers[peer] != 0) atomicAdd(&mine.direct_calls, 1ull);
  const std::uint32_t number = numbers.given() + 1;
  Patience patience(task);
  while (!reached(peek_acquire(&mine.loaded[peer][blockIdx.x]), number))
    if (!patience.more(peer, number)) break;
}

}  // namespace paceline::cuda
