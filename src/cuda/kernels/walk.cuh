// The kernel that walks a schedule: every algorithm of the table on GPUs, where one is forced (walk.h has the rules).
//
// All threads of a block take a step together: one for each peer waits for its word, all move the slice, one for each
// peer tells it. That costs a few microseconds a step, whatever its length: made to serve every schedule, not to be
// fast for one. What a step reads and writes is in the user's memory, at any address, and in slots of the windows.
#pragma once

#include "cuda/calls/walk.h"
#include "cuda/kernels/parts/clerk.cuh"
#include "cuda/kernels/parts/memory.cuh"

namespace paceline::cuda {

struct WalkShared {
  BlockState state;
  Numbers numbers[max_gpus];
  std::byte* slots[max_gpus];           // of the step's chunks, by rank
  const std::byte* operands[max_gpus];  // of a fold, in their order
  volatile bool failed;
};

// ---- Waiting ----

// The thread of a rank.
__device__ inline void wait_for_rank(const WalkTask& task, WalkShared& shared, const DeviceStep& step, int rank) {
  const Awaited awaited = awaited_of_rank(task, shared.state, step, rank);
  if (awaited.word == nullptr) return;
  const Expected message = expected(task, rank, shared.numbers[rank].taken + 1);
  Patience patience(task);
#pragma unroll 1
  while (!reached(peek_acquire(awaited.word), awaited.number))
    if (shared.failed || !(gives(step) ? patience.more(rank, shared.numbers[rank].given + 1, task.count_to(rank))
                                       : patience.more(message))) {
      shared.failed = true;
      return;
    }
}

// The thread of a block. It needs no deadline of its own: whichever block all wait for in the end waits for a rank.
__device__ inline void wait_for_block(const WalkTask& task, WalkShared& shared, const DeviceStep& step,
                                      std::uint32_t block) {
  const Awaited awaited = awaited_of_block(task, shared.state, step, block);
  if (awaited.word == nullptr) return;
  unsigned looks = 0;
#pragma unroll 1
  while (!reached(peek_acquire(awaited.word), awaited.number))
    if (shared.failed || ((++looks & 511) == 0 && is_to_end(task, peek(&task.alarm->abort)))) {
      shared.failed = true;
      return;
    }
}

// ---- Moving ----

// A slice, vector by vector: load(i, vector) fills a vector from byte i on, store(i, vector) puts it there. The last
// one may be half of what is loaded.
template <class Vector, int unroll, class Load, class Store>
__device__ void move_vectors(std::uint64_t begin, std::uint64_t end, Load load, Store store) {
  constexpr std::uint64_t step = walk_threads * sizeof(Vector);
#pragma unroll 1
  for (std::uint64_t i = begin + threadIdx.x * sizeof(Vector); i < end; i += step * unroll) {
    Vector data[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint64_t j = i + u * step; j < end) load(j, data[u]);
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint64_t j = i + u * step; j < end) store(j, data[u]);
  }
}
// whole: addresses in the user's memory are multiples of 16.
template <class Load, class Store>
__device__ void move_slice(std::uint64_t bytes, bool whole, Load load, Store store) {
  const std::uint64_t vectors = whole ? bytes / 16 * 16 : 0;
  move_vectors<uint4, 4>(0, vectors, load, store);
  move_vectors<uint2, 1>(vectors, bytes, load, store);
}

template <int alignment>
__device__ bool is_aligned(const std::byte* address) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
}

__device__ inline auto loads_from(const std::byte* from, std::uint64_t bytes) {
  return [=, aligned = is_aligned<8>(from)](std::uint64_t i, auto& vector) {
    if constexpr (sizeof vector == 16)
      vector = *reinterpret_cast<const uint4*>(from + i);
    else
      vector = load_8(from + i, bytes - i, aligned);
  };
}
__device__ inline auto stores_to(std::byte* to, std::uint64_t bytes) {
  return [=, aligned = is_aligned<8>(to)](std::uint64_t i, const auto& vector) {
    if constexpr (sizeof vector == 16)
      *reinterpret_cast<uint4*>(to + i) = vector;
    else
      store_8(to + i, vector, bytes - i, aligned);
  };
}
// A chunk in a window: always aligned, with room behind its end.
__device__ inline auto loads_from_slot(const std::byte* slot) {
  return [=](std::uint64_t i, auto& vector) {
    if constexpr (sizeof vector == 16)
      vector = peek(reinterpret_cast<const uint4*>(slot + i));
    else
      vector = *reinterpret_cast<const uint2*>(slot + i);
  };
}

__device__ inline void send_slice(const WalkTask& task, const WalkShared& shared, const DeviceStep& step,
                                  const std::byte* from, std::uint64_t bytes) {
  move_slice(bytes, is_aligned<16>(from), loads_from(from, bytes), [&](std::uint64_t i, const auto& vector) {
#pragma unroll 1
    for (int rank = 0; rank < task.ranks; ++rank)
      if (has_peer(step, rank)) {
        if constexpr (sizeof vector == 16)
          post(reinterpret_cast<uint4*>(shared.slots[rank] + i), vector);
        else
          *reinterpret_cast<uint2*>(shared.slots[rank] + i) = vector;
      }
  });
}

// Copies of plans that scale or divide go this way too.
template <class Element>
__device__ void copy_slice(const WalkTask& task, std::byte* to, const std::byte* from, std::uint64_t bytes) {
  const auto store = stores_to(to, bytes);
  move_slice(bytes, is_aligned<16>(from) && is_aligned<16>(to), loads_from(from, bytes),
             [&](std::uint64_t i, auto vector) {
               // One by one: with one rank no row follows that would make of any NaN the type's.
               if (task.scales) vector = multiplied_one_by_one<Element>(task, vector);
               if (task.divides != 0) vector = quotient<Element>(vector, task.divides);
               store(i, vector);
             });
}

// `own`: which of the operands is the rank's own; -1: none. The next one is on its way while one is folded.
template <class Element, class Vector, int unroll>
__device__ void fold_vectors(const WalkTask& task, const WalkShared& shared, int operands, int own, std::byte* to,
                             std::uint64_t begin, std::uint64_t end, std::uint64_t bytes) {
  constexpr std::uint64_t step = walk_threads * sizeof(Vector);
  const auto store = stores_to(to, bytes);
#pragma unroll 1
  for (std::uint64_t i = begin + threadIdx.x * sizeof(Vector); i < end; i += step * unroll) {
    const auto load = [&](int operand, Vector(&into)[unroll]) {
      const std::byte* const from = shared.operands[operand];
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const std::uint64_t j = i + u * step;
        if (j >= end) continue;
        if (operand == own)
          loads_from(from, bytes)(j, into[u]);
        else
          loads_from_slot(from)(j, into[u]);
      }
    };
    Row<Element, Vector> folded[unroll];
    Vector next[unroll]{};
    load(0, next);
#pragma unroll 1
    for (int operand = 0; operand < operands; ++operand) {
      Vector data[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) data[u] = next[u];
      if (operand + 1 < operands) load(operand + 1, next);
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const auto row = Row<Element, Vector>::load(data[u]);
        if (operand == 0)
          folded[u] = row;
        else
          folded[u].fold(static_cast<Operation>(task.op), row);
      }
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint64_t j = i + u * step; j < end) store(j, folded[u].store());
  }
}

template <class Element>
__device__ void fold_slice(const WalkTask& task, const WalkShared& shared, const DeviceStep& step, std::byte* to,
                           const std::byte* from, std::uint64_t bytes) {
  const unsigned below = (1u << task.rank) - 1;
  const int operands = __popc(step.peers) + (step.own ? 1 : 0);
  const int own = step.own ? __popc(step.peers & below) : -1;
  const bool whole = is_aligned<16>(to) && (!step.own || is_aligned<16>(from));
  const std::uint64_t vectors = whole ? bytes / 16 * 16 : 0;
  constexpr int unroll = sizeof(typename Element::Stored) <= 2 ? 1 : 2;  // what the registers hold
  fold_vectors<Element, uint4, unroll>(task, shared, operands, own, to, 0, vectors, bytes);
  fold_vectors<Element, uint2, 1>(task, shared, operands, own, to, vectors, bytes, bytes);
}

// ---- The walk ----

// All threads. False: given up.
template <class Element>
__device__ bool take_step(const WalkTask& task, WalkShared& shared, const DeviceStep& step, std::uint32_t done) {
  const Slice slice = slice_of(step, shared.state.block);
  if (slice.bytes == 0 && step.after == 0 && !step.awaited) return true;
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = slice.bytes != 0 && thread < task.ranks ? thread : -1;  // that this thread looks after
  const std::byte* const from = task.buffers[static_cast<int>(step.source_buffer)] + step.source + slice.offset;
  std::byte* const to = task.buffers[static_cast<int>(step.target_buffer)] + step.target + slice.offset;
  if (rank >= 0) {
    const unsigned operands = step.peers | (step.own ? 1u << task.rank : 0u);
    const int place = __popc(operands & ((1u << rank) - 1));
    if (has_peer(step, rank)) {
      wait_for_rank(task, shared, step, rank);
      shared.slots[rank] = slot_of(task, shared.state, step, rank);
      shared.operands[place] = shared.slots[rank];
    } else if (step.own && rank == task.rank) {
      shared.operands[place] = from;
    }
  }
  if (thread / 32 == 1) wait_for_block(task, shared, step, static_cast<std::uint32_t>(thread) % 32);
  __syncthreads();
  if (shared.failed) return false;

  if (slice.bytes != 0) switch (step.action) {
      case Action::send: send_slice(task, shared, step, from, slice.bytes); break;
      case Action::recv: {
        const std::byte* const slot = shared.slots[__ffs(step.peers) - 1];
        move_slice(slice.bytes, is_aligned<16>(to), loads_from_slot(slot), stores_to(to, slice.bytes));
        break;
      }
      case Action::recv_reduce: fold_slice<Element>(task, shared, step, to, from, slice.bytes); break;
      case Action::copy: copy_slice<Element>(task, to, from, slice.bytes); break;
    }
  __syncthreads();
  // Release: after the barrier that covers what all threads of the block have written, and read.
  if (rank >= 0 && has_peer(step, rank)) {
    const Told told = tell_rank(task, shared.state, step, rank);
    post_release(told.word, told.number);
  }
  if (thread == 32 && step.awaited) {
    const Told told = tell_blocks(task, shared.state, done + 1);
    post_release(told.word, told.number);
  }
  return true;
}

template <class Element>
__global__ void __launch_bounds__(walk_threads, 2) walk_schedule(const __grid_constant__ WalkTask task) {
  __shared__ WalkShared shared;
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = thread / most_lanes;
  const std::uint32_t lane = static_cast<std::uint32_t>(thread) % most_lanes;
  const bool has_lane = rank < task.ranks && lane < task.lanes;
  wait_for_kernel_before();
  if (thread == 0) {
    place_block(task, shared.state, blockIdx.x);
    shared.failed = false;
  }
  WarpNumbers numbers(task);
  numbers.read();
  if (thread < task.ranks) shared.numbers[thread] = {numbers.given(), numbers.taken()};
  if (blockIdx.x == 0 && thread / 32 == 1) announce(task, numbers);
  constexpr int warps = walk_threads / 32;
  // Calls behind this one are announced by later numbers.
  if (__syncthreads_or(has_ended(task)) != 0) return end_block(task, numbers, warps);
  if (has_lane) begin_lane(task, shared.state, rank, lane);
  __syncthreads();

  const std::uint32_t first = task.begins[shared.state.channel];
  const std::uint32_t steps = task.begins[shared.state.channel + 1] - first;
  DeviceStep next{};
  if (steps != 0) next = task.steps[first];
#pragma unroll 1
  for (std::uint32_t done = 0; done < steps; ++done) {
    const DeviceStep step = next;
    if (done + 1 < steps) next = task.steps[first + done + 1];  // in time
    if (!take_step<Element>(task, shared, step, done)) return end_block(task, numbers, warps);
  }
  __syncthreads();
  if (has_lane) end_lane(task, shared.state, rank, lane);
  if (thread == 32 && task.progress != nullptr) {
    const Told told = tell_blocks(task, shared.state, steps);
    post(told.word, told.number);
  }
  if (blockIdx.x == 0 && thread < 32) compare_calls(task, numbers);
  __syncthreads();
  end_block(task, numbers, warps);
}
static_assert(max_gpus * most_lanes <= walk_threads && max_gpus <= 32 && max_blocks <= 32);

}  // namespace paceline::cuda
