// The exchange of long messages: blocks that give and take at the same time, lane by lane.
//
// A piece is cut into chunks, and chunk k goes through lane k % lanes. A lane is a ring of chunks in the peer's window:
// `ready` there counts the chunks that came, and `freed` at their source those that were taken, so that a giver never
// is more than a ring ahead. A block has four lanes: its first four warps give, lane after lane; four groups of four
// warps take, one for each lane. They wait for a chunk, then fold it with the others' and the rank's own, or copy it.
// While one group waits, the others work, so the link is busy in both directions all the time, and what it brought is
// still in the L2 cache when it is read.
//
// On sm_90 one thread gives, by bulk copies: memory -> shared memory -> the peer's window, several in flight each way;
// a second one announces what has arrived, since the fence before that takes longer than a copy.
// Elsewhere, on GPUs with little shared memory, and for addresses that are not multiples of 16 or values that are
// scaled, 128 threads copy.
//
// Sends and receives may be of both kinds: four more warps move those that go by strips (message_strips.cuh). None of
// the long ones waits for another, and they need no window where the receiver sees the sender's memory
// (long_messages.cuh).
//
// Time: launch + a few chunks' time + M/B. With two ranks each collective moves the fewest bytes there are; with more,
// exchange.cc puts two exchanges in a row where that takes fewer.
#pragma once

#include <type_traits>

#include "cuda/kernels/parts/giving.cuh"
#include "cuda/kernels/parts/long_messages.cuh"
#include "cuda/kernels/parts/message_strips.cuh"
#include "cuda/kernels/parts/taking.cuh"

namespace paceline::cuda {

// The giving threads' part.
template <class Element, class Task>
__device__ void give(const Task& task, LargeShared& shared) {
  if constexpr (std::is_same_v<Task, MessageTask>)
    if (window_gives(task) > 1) return give_messages<Element>(task, shared);
#if __CUDA_ARCH__ >= 900
  if (task.alignment == 16 && !task.scales && has_chunks()) {
    if (threadIdx.x == 0) {
      if (task.chunk_bytes() > largest_short_chunk)
        give_by_bulk_copies<LongChunks>(task, shared);
      else
        give_by_bulk_copies<ShortChunks>(task, shared);
    }
    if (threadIdx.x == 32) announce_arrivals(task, shared);
    return;
  }
#endif
  give_by_threads<Element>(task, shared);
}

template <class Element, class Task, bool strips = false>
__global__ void __launch_bounds__(large_threads + (strips ? strip_threads : 0), 1)
    exchange_large(const __grid_constant__ Task task) {
  extern __shared__ __align__(128) std::byte memory[];
  auto& shared = *reinterpret_cast<LargeShared*>(memory);
  WindowWords& mine = words(task.windows[task.rank]);
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = thread / lanes_in_block;
  const int lane = thread % lanes_in_block;
  wait_for_kernel_before();
  const bool over = has_ended(task);
  if (went_direct(task)) {
    __syncthreads();  // all have read it: the next kernel writes it when this one has signed off
    return sign_off(task);
  }
  if (rank < task.ranks) {
    shared.chunks_given[rank][lane] = peek(&mine.chunks_given[rank][first_lane() + lane]);
    shared.chunks_announced[rank][lane] = shared.chunks_given[rank][lane];
    shared.chunks_taken[rank][lane] = peek(&mine.chunks_taken[rank][first_lane() + lane]);
  }
  if (thread < lanes_in_block) {
    shared.read[thread].clear();
    shared.taking_failed[thread] = false;
  }
  WarpNumbers numbers(task);
  numbers.read();
  if (thread < task.ranks) shared.numbers[thread] = {numbers.given(), numbers.taken()};
  constexpr bool messages = std::is_same_v<Task, MessageTask>;
  if (messages && thread < max_gpus) shared.settled[thread] = 0;
  if (thread == 0) {
    shared.failed.clear();
    shared.giving_failed = false;
    shared.arrived.clear();
  }
  if (blockIdx.x == 0 && thread / 32 == 3) announce(task, numbers);
  if (__syncthreads_or(over) != 0) return end_block(task, numbers, static_cast<int>(blockDim.x) / 32);
  if constexpr (messages)
    if (thread / 32 == 2) make_offers(task, numbers);

  if (strips && thread >= large_threads) {
    if constexpr (strips)
      move_messages<brief_stride.strips>(task,
                                         static_cast<unsigned>(thread - large_threads) / 32 * gridDim.x + blockIdx.x,
                                         strip_threads / 32 * gridDim.x);
  } else if (thread >= giving_threads) {
    const Group group{(thread - giving_threads) / group_threads, (thread - giving_threads) % group_threads};
    if constexpr (messages)
      take_messages<Element>(task, shared, numbers, group);
    else if (task.folds)
      take_and_fold<Element>(task, shared, group);
    else
      take_and_copy<Element>(task, shared, group);
  } else {
    give<Element>(task, shared);
    if (blockIdx.x == 0 && thread / 32 == 3) compare_calls(task, numbers);
  }
  __syncthreads();
  let_next_kernel_start();
  if constexpr (messages)
    if (thread < 32) await_loads(task, numbers);
  // After an alarm the communicator has ended, and its numbers are of no use.
  if (rank < task.ranks) post(&mine.chunks_given[rank][first_lane() + lane], shared.chunks_announced[rank][lane]);
  end_block(task, numbers, static_cast<int>(blockDim.x) / 32);
}

}  // namespace paceline::cuda
