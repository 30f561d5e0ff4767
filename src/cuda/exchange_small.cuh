// The exchange of short messages: one kernel, one way over the link, and no barrier.
//
// A message travels as packets of 16 bytes, {data, flag, data, flag}, written in one store each: whoever sees the flags
// has the data, so there is no fence and no second word to wait for. The flag is the message's number. The cost is
// twice the bytes, which is why long messages go another way (exchange_large.cuh).
//
// A source has small_slots slots in each peer's window and takes them in turn; slot `number` is free again when the
// peer has taken message `number - small_slots`. A peer tells how many it has taken when its next kernel begins.
//
// The first warp of each block moves no data: in the first block it is the clerk (clerk.cuh), beside the others.
//
// Time: launch + one store over the link + 2 M/B.
// Source: NCCL's LL protocol (Jeaugey 2019); the all-pairs form is MSCCL++'s and TensorRT-LLM's one-shot all-reduce.
#pragma once

#include "cuda/clerk.cuh"
#include "cuda/fold.cuh"

namespace paceline::cuda {

// Up to 8 bytes of a piece.
__device__ inline uint2 load_8(const std::byte* from, std::uint64_t left, bool aligned) {
  if (aligned && left >= 8) [[likely]]
    return *reinterpret_cast<const uint2*>(from);
  uint2 value{};
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  for (int i = 0; i < 8; ++i)
    if (i < left) bytes[i] = from[i];
  return value;
}
__device__ inline void store_8(std::byte* to, uint2 value, std::uint64_t left, bool aligned) {
  if (aligned && left >= 8) [[likely]] {
    *reinterpret_cast<uint2*>(to) = value;
    return;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  for (int i = 0; i < 8; ++i)
    if (i < left) to[i] = bytes[i];
}

template <class Element, class Vector>
__device__ Vector scaled(const Terms& terms, Vector vector) {
  if (!terms.scales) return vector;
  typename Element::Stored factor;
  memcpy(&factor, terms.factor, sizeof factor);
  auto row = Row<Element, Vector>::load(vector);
  row.scale(Element::load(factor));
  return row.store();
}

template <class Element>
__global__ void __launch_bounds__(1024) exchange_small(const __grid_constant__ Task task) {
  const bool aligned = task.alignment >= 8;
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * (blockDim.x - 32);
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * (blockDim.x - 32) + threadIdx.x - 32;
  const WarpNumbers numbers(task);
  bool well = true;

  if (threadIdx.x < 32) {
    if (blockIdx.x == 0) {
      tell_peers(task, numbers);
      compare_calls(task, numbers);
    }
  } else {
    for (int step = 1; step < task.ranks; ++step) {
      const int peer = task.rank + step < task.ranks ? task.rank + step : task.rank + step - task.ranks;
      const std::uint32_t number = numbers.given(peer) + 1;
      const std::uint32_t credit = numbers.credit(peer);
      const Piece piece = task.give(peer);
      if (!well || piece.bytes <= first * 8) continue;
      uint2 data = load_8(piece.data + first * 8, piece.bytes - first * 8, aligned);
      if (!reached(credit, number - small_slots)) {
        const std::uint32_t* const now = &words(task.windows[task.rank]).credits[peer];
        Patience patience(task);
        while (well && !reached(peek(now), number - small_slots)) well = patience.more(peer, number);
        if (!well) continue;
      }
      uint4* const slot = small_slot(task, peer, task.rank, number);
      for (std::uint64_t i = first;;) {
        data = scaled<Element>(task, data);
        post(&slot[i], uint4{data.x, number, data.y, number});
        i += stride;
        if (i * 8 >= piece.bytes) break;
        data = load_8(piece.data + i * 8, piece.bytes - i * 8, aligned);
      }
    }

    const auto own = [&](std::uint64_t i) {
      return scaled<Element>(task, load_8(task.own + i * 8, task.own_bytes - i * 8, aligned));
    };
    const auto take = [&](int source, const uint4* slot, std::uint32_t number, std::uint64_t i) {
      uint4 found = peek(&slot[i]);
      if (found.y != number || found.w != number) {
        Patience patience(task);
        const Expected message = expected(task, source, number);
        do {
          well = patience.more(message);
          found = peek(&slot[i]);
        } while (well && (found.y != number || found.w != number));
      }
      return uint2{found.x, found.z};
    };

    if (task.folds) {
      // Packet by packet, in the order of the ranks.
      const std::uint64_t bytes = task.own_bytes;
      const std::uint64_t turns = bytes == 0 ? 0 : ((bytes + 7) / 8 + stride - 1) / stride;
      for (std::uint64_t turn = 0, i = first; turn < turns; ++turn, i += stride) {
        Row<Element, uint2> folded;
        for (int source = 0; source < task.ranks; ++source) {
          const std::uint32_t number = numbers.taken(source) + 1;
          if (!well || i * 8 >= bytes) continue;
          const uint2 data =
              source == task.rank ? own(i) : take(source, small_slot(task, task.rank, source, number), number, i);
          const auto row = Row<Element, uint2>::load(data);
          if (source == 0)
            folded = row;
          else
            folded.fold(static_cast<Operation>(task.op), row);
        }
        if (!well || i * 8 >= bytes) continue;
        if (task.divides != 0) folded.divide(task.divides);
        store_8(task.target + i * 8, folded.store(), bytes - i * 8, aligned);
      }
    } else {
      for (std::uint64_t i = first; i * 8 < task.own_bytes; i += stride)
        store_8(task.target + i * 8, own(i), task.own_bytes - i * 8, aligned);
      for (int step = 1; step < task.ranks; ++step) {
        // In the order in which they give to this rank.
        const int source = task.rank >= step ? task.rank - step : task.rank - step + task.ranks;
        const std::uint32_t number = numbers.taken(source) + 1;
        const Piece piece = task.take(source);
        const uint4* const slot = small_slot(task, task.rank, source, number);
        for (std::uint64_t i = first; well && i * 8 < piece.bytes; i += stride) {
          const uint2 data = take(source, slot, number, i);
          if (well) store_8(piece.data + i * 8, data, piece.bytes - i * 8, aligned);
        }
      }
    }
  }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane < task.ranks && lane != task.rank)
    move_on(task, numbers.given(), numbers.taken(), lane, static_cast<int>(blockIdx.x + gridDim.x * warp),
            static_cast<int>(gridDim.x * (blockDim.x / 32)));
}

}  // namespace paceline::cuda
