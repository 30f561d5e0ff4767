// Giving chunks to the peers' lanes: by 128 threads, or by bulk copies, which one thread starts and a second one
// announces (exchange_large.cuh).
#pragma once

#include "cuda/kernels/parts/lanes.cuh"

namespace paceline::cuda {

// Whether what comes next is of another lane or round than what was given.
template <class Task>
__device__ bool done_with(const Cursor<Task>& next, int lane, std::uint32_t round) {
  return next.ended() || next.lane() != lane || next.round() != round;
}

// ---- Giving, by 128 threads ----

// One chunk into a peer's window.
template <class Element>
__device__ void give_chunk(const Terms& terms, const std::byte* from, std::byte* to, std::uint32_t bytes) {
  const auto thread = threadIdx.x;
  std::uint32_t done = 0;
  if (terms.alignment == 16) {
    constexpr int unroll = 8;
    done = bytes / 16 * 16;
#pragma unroll 1
    for (std::uint32_t i = thread * 16; i < done; i += giving_threads * 16 * unroll) {
      uint4 data[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u)
        if (const std::uint32_t j = i + u * giving_threads * 16; j < done)
          data[u] = *reinterpret_cast<const uint4*>(from + j);
#pragma unroll
      for (int u = 0; u < unroll; ++u)
        if (const std::uint32_t j = i + u * giving_threads * 16; j < done)
          post(reinterpret_cast<uint4*>(to + j), scaled<Element>(terms, data[u]));
    }
  }
#pragma unroll 1
  for (std::uint32_t i = done + thread * 8; i < bytes; i += giving_threads * 8)
    store_8(to + i, scaled<Element>(terms, load_8(from + i, bytes - i, terms.alignment >= 8)), 8, true);
}

template <class Element, class Task>
__device__ void give_by_threads(const Task& task, LargeShared& shared) {
  const auto together = [] { asm volatile("bar.sync 1, 128;" ::: "memory"); };
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (Cursor<Task> at(task); !at.ended();) {
    const int peer = at.peer();
    const int lane = at.lane();
    const std::uint32_t round = at.round();
    const std::uint32_t number = shared.chunks_given[peer][lane] + round;
    if (thread == 0 && !wait_for_room(task, shared, peer, lane, number, peek_freed(task, peer, lane)))
      shared.giving_failed = true;
    together();
    if (shared.giving_failed) return;
    const std::byte* const from = at.data();
    std::byte* const to = chunk_slot(task, peer, task.rank, lane, number);
    const std::uint32_t bytes = at.bytes();
    give_chunk<Element>(task, from, to, bytes);
    fence_system();  // every thread's part comes before the count of its chunk
    at.next();
    together();
    if (thread == 0) {
      post(&words(task.windows[peer]).ready[task.rank][first_lane() + lane], number + 1);
      shared.chunks_announced[peer][lane] = number + 1;
      if (task.overwrites && done_with(at, lane, round)) shared.read[lane].raise_to(round + 1);
    }
    together();
  }
  if (task.overwrites && thread < lanes_in_block) shared.read[thread].raise_to(UINT32_MAX);
}

// ---- Giving, by bulk copies ----

#if __CUDA_ARCH__ >= 900

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void start_load(LargeShared& shared, int stage, int stage_bytes, const std::byte* from,
                                  std::uint32_t bytes) {
  const std::uint32_t barrier = shared_address(&shared.loaded[stage]);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
  if (bytes == 0) return;
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared.chunks + stage * stage_bytes)),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ inline void wait_for_load(LargeShared& shared, int stage, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(&shared.loaded[stage])),
      "r"(parity)
      : "memory");
}
__device__ inline void start_store(LargeShared& shared, int stage, int stage_bytes, std::byte* to,
                                   std::uint32_t bytes) {
  if (bytes != 0)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(shared.chunks + stage * stage_bytes)), "r"(bytes)
                 : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// One thread. Loads run ahead of stores.
template <class Pace, class Task>
__device__ void give_by_bulk_copies(const Task& task, LargeShared& shared) {
  constexpr int stages = Pace::stages;
  constexpr int loads_ahead = Pace::loads_ahead;
  constexpr int stores_open = Pace::stores_open;
  constexpr int stage_bytes = sizeof shared.chunks / stages;
  for (int stage = 0; stage < stages; ++stage)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&shared.loaded[stage])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");

  Cursor<Task> loading(task);
  Cursor<Task> storing(task);
  std::uint32_t loads = 0;
  std::uint32_t stores = 0;
  std::uint32_t freed = storing.ended() ? 0 : peek_freed(task, storing.peer(), storing.lane());
#pragma unroll 1
  while (!storing.ended()) {
#pragma unroll 1
    for (; !loading.ended() && loads < stores + loads_ahead; loading.next(), ++loads) {
      // The stage's last store has read it.
      if (loads >= stages) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(stages - loads_ahead) : "memory");
      start_load(shared, static_cast<int>(loads % stages), stage_bytes, loading.data(), loading.bytes() / 16 * 16);
    }
    const int stage = static_cast<int>(stores % stages);
    const int peer = storing.peer();
    const int lane = storing.lane();
    const std::uint32_t round = storing.round();
    const std::uint32_t number = shared.chunks_given[peer][lane] + round;
    wait_for_load(shared, stage, stores / stages & 1);
    if (!wait_for_room(task, shared, peer, lane, number, freed)) {
      // What is under way reads and writes shared memory, which must not end before.
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#pragma unroll 1
      for (std::uint32_t i = stores + 1; i < loads; ++i)
        wait_for_load(shared, static_cast<int>(i % stages), i / stages & 1);
      return;
    }
    const std::uint32_t bytes = storing.bytes();
    const std::uint32_t whole = bytes / 16 * 16;
    std::byte* const to = chunk_slot(task, peer, task.rank, lane, number);
    start_store(shared, stage, stage_bytes, to, whole);
#pragma unroll 1
    for (std::uint32_t i = whole; i < bytes; ++i)
      *reinterpret_cast<volatile std::uint8_t*>(to + i) = static_cast<std::uint8_t>(storing.data()[i]);
    ++stores;
    storing.next();
    if (!storing.ended()) freed = peek_freed(task, storing.peer(), storing.lane());  // in time for the next
    if (task.overwrites && done_with(storing, lane, round)) shared.read[lane].raise_to(round + 1);
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(stores_open) : "memory");
    if (stores > stores_open) shared.arrived.raise_to(stores - stores_open);
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  shared.arrived.raise_to(stores);
  if (task.overwrites)
#pragma unroll 1
    for (int lane = 0; lane < lanes_in_block; ++lane) shared.read[lane].raise_to(UINT32_MAX);
}

// Another thread: tells the peers what has arrived, as much as there is with one fence. It goes the giving thread's way
// over the chunks, so that a count is all that it needs of it.
template <class Task>
__device__ void announce_arrivals(const Task& task, LargeShared& shared) {
  std::uint32_t announced = 0;
#pragma unroll 1
  for (Cursor<Task> at(task); !at.ended();) {
    const std::uint32_t arrived = shared.arrived.look();
    if (arrived == announced) {
      if (shared.failed.look() != 0) return;
      __nanosleep(100);  // a thread that spins takes time from those that copy: 2% of a long all-reduce
      continue;
    }
    fence_system();  // the chunks come before their counts, for whoever acquires those
#pragma unroll 1
    for (; announced != arrived; ++announced, at.next())
      post(&words(task.windows[at.peer()]).ready[task.rank][first_lane() + at.lane()],
           ++shared.chunks_announced[at.peer()][at.lane()]);
  }
}

#endif

}  // namespace paceline::cuda
