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

// What few calls need is kept out of line: an instruction that is not in the cache costs more than the memory.

// Up to 8 bytes of a piece, at any address.
__device__ __noinline__ inline uint2 load_bytes(const std::byte* from, std::uint64_t left) {
  uint2 value{};
  auto* bytes = reinterpret_cast<std::byte*>(&value);
  int i = 0;
  if (left >= 4 && reinterpret_cast<std::uintptr_t>(from) % 4 == 0) {
    value.x = *reinterpret_cast<const std::uint32_t*>(from);
    i = 4;
  }
  for (; i < 8 && i < left; ++i) bytes[i] = from[i];
  return value;
}
__device__ __noinline__ inline void store_bytes(std::byte* to, uint2 value, std::uint64_t left) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  int i = 0;
  if (left >= 4 && reinterpret_cast<std::uintptr_t>(to) % 4 == 0) {
    *reinterpret_cast<std::uint32_t*>(to) = value.x;
    i = 4;
  }
  for (; i < 8 && i < left; ++i) to[i] = bytes[i];
}
__device__ inline uint2 load_8(const std::byte* from, std::uint64_t left, bool aligned) {
  return aligned && left >= 8 ? *reinterpret_cast<const uint2*>(from) : load_bytes(from, left);
}
__device__ inline void store_8(std::byte* to, uint2 value, std::uint64_t left, bool aligned) {
  if (aligned && left >= 8)
    *reinterpret_cast<uint2*>(to) = value;
  else
    store_bytes(to, value, left);
}

template <class Element, class Vector>
__device__ __noinline__ Vector multiplied(const Terms& terms, Vector vector) {
  typename Element::Stored factor;
  memcpy(&factor, terms.factor, sizeof factor);
  auto row = Row<Element, Vector>::load(vector);
  row.scale(Element::load(factor));
  return row.store();
}
template <class Element, class Vector>
__device__ Vector scaled(const Terms& terms, Vector vector) {
  return terms.scales ? multiplied<Element>(terms, vector) : vector;
}

template <class Element, class Vector>
__device__ __noinline__ Vector quotient(Vector vector, int divisor) {
  auto row = Row<Element, Vector>::load(vector);
  row.divide(divisor);
  return row.store();
}
// A fold's result as it is stored.
template <class Element, class Vector>
__device__ Vector finished(const Terms& terms, const Row<Element, Vector>& folded) {
  const Vector vector = folded.store();
  return terms.divides != 0 ? quotient<Element>(vector, terms.divides) : vector;
}

template <class Element>
__global__ void __launch_bounds__(1024) exchange_small(const __grid_constant__ Task task) {
  const bool aligned = task.alignment >= 8;
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * (blockDim.x - 32);
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * (blockDim.x - 32) + threadIdx.x - 32;
  // The first peer's data is asked for before the numbers are there.
  const int next = task.rank + 1 < task.ranks ? task.rank + 1 : 0;
  const Piece begin = task.give(next);
  wait_for_kernel_before();
  const bool begins = threadIdx.x >= 32 && begin.bytes > first * 8;
  const uint2 begun = begins ? load_8(begin.data + first * 8, begin.bytes - first * 8, aligned) : uint2{};
  const WarpNumbers numbers(task);
  bool well = true;

  if (threadIdx.x < 32) {
    if (blockIdx.x == 0) {
      tell_peers(task, numbers);
      compare_calls(task, numbers);
    }
  } else {
#pragma unroll 1
    for (int step = 1; step < task.ranks; ++step) {
      const int peer = task.rank + step < task.ranks ? task.rank + step : task.rank + step - task.ranks;
      const std::uint32_t number = numbers.given(peer) + 1;
      const std::uint32_t credit = numbers.credit(peer);
      const Piece piece = task.give(peer);
      if (!well || piece.bytes <= first * 8) continue;
      uint2 data = step == 1 ? begun : load_8(piece.data + first * 8, piece.bytes - first * 8, aligned);
      if (!reached(credit, number - small_slots)) {
        const std::uint32_t* const now = &words(task.windows[task.rank]).credits[peer];
        Patience patience(task);
#pragma unroll 1
        while (well && !reached(peek(now), number - small_slots)) well = patience.more(peer, number);
        if (!well) continue;
      }
      uint4* const slot = small_slot(task, peer, task.rank, number);
#pragma unroll 1
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
      const std::uint64_t lane = threadIdx.x % 32;
#pragma unroll 1
      for (std::uint64_t warp = first - lane; warp * 8 < bytes; warp += stride) {  // whole warps
        const std::uint64_t i = warp + lane;
        Row<Element, uint2> folded;
#pragma unroll 1
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
        store_8(task.target + i * 8, finished(task, folded), bytes - i * 8, aligned);
      }
    } else {
#pragma unroll 1
      for (std::uint64_t i = first; i * 8 < task.own_bytes; i += stride)
        store_8(task.target + i * 8, own(i), task.own_bytes - i * 8, aligned);
#pragma unroll 1
      for (int step = 1; step < task.ranks; ++step) {
        // In the order in which they give to this rank.
        const int source = task.rank >= step ? task.rank - step : task.rank - step + task.ranks;
        const std::uint32_t number = numbers.taken(source) + 1;
        const Piece piece = task.take(source);
        const uint4* const slot = small_slot(task, task.rank, source, number);
#pragma unroll 1
        for (std::uint64_t i = first; well && i * 8 < piece.bytes; i += stride) {
          const uint2 data = take(source, slot, number, i);
          if (well) store_8(piece.data + i * 8, data, piece.bytes - i * 8, aligned);
        }
      }
    }
  }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __syncthreads();
  move_on(task, numbers);
}

}  // namespace paceline::cuda
