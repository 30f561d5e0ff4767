// Taking chunks from the lanes of this rank's window: a group of 128 threads for each lane, which folds them or copies
// them to where they belong (exchange_large.cuh).
#pragma once

#include "cuda/kernels/parts/lanes.cuh"

namespace paceline::cuda {

struct Group {
  int lane;    // of this block
  int thread;  // of the group
  __device__ void together() const { asm volatile("bar.sync %0, 128;" ::"r"(lane + 2) : "memory"); }
};

// What a group takes from its lane, round by round. All of its threads call everything.
template <class Task>
class Taking {
 public:
  __device__ Taking(const Task& task, LargeShared& shared, const Group& group)
      : task_(task), shared_(shared), group_(group), lane_(first_lane() + static_cast<std::uint32_t>(group.lane)) {}

  [[nodiscard]] __device__ Chunk chunk(int source) const {
    return chunk_of(task_.take(source), task_.take_cut(source), lane_, round_);
  }
  // Where this round's chunk of a source lies.
  [[nodiscard]] __device__ const std::byte* slot(int source) const {
    return chunk_slot(task_, task_.rank, source, group_.lane, shared_.chunks_taken[source][group_.lane] + round_);
  }

  // This round's chunk of every source is there. Each look tells how many more are: those are not waited for again.
  __device__ bool wait() {
    if (known_ == 0) {
      look();
      group_.together();
      if (shared_.taking_failed[group_.lane]) return false;
      known_ = UINT32_MAX;
#pragma unroll 1
      for (int source = 0; source < task_.ranks; ++source)
        if (source != task_.rank && chunk(source).bytes != 0) known_ = min(known_, shared_.there[source][group_.lane]);
    }
    --known_;
    return true;
  }

  // After all of the group have read them: the chunks are the sources' again.
  __device__ void free() {
    group_.together();
    const int source = group_.thread;
    if (source < task_.ranks && source != task_.rank && chunk(source).bytes != 0)
      post(&words(task_.windows[source]).freed[task_.rank][lane_],
           shared_.chunks_taken[source][group_.lane] + ++taken_);
    ++round_;
  }

  // At the end: for the next kernel.
  __device__ void count() {
    const int source = group_.thread;
    if (source < task_.ranks)
      post(&words(task_.windows[task_.rank]).chunks_taken[source][lane_],
           shared_.chunks_taken[source][group_.lane] + taken_);
  }

 private:
  // A thread for each source waits for its chunk.
  __device__ void look() {
    const int source = group_.thread;
    if (source < task_.ranks && source != task_.rank && chunk(source).bytes != 0) {
      const std::uint32_t* const ready = &words(task_.windows[task_.rank]).ready[source][lane_];
      const std::uint32_t before = shared_.chunks_taken[source][group_.lane] + round_;
      const Expected message = expected(task_, source, shared_.numbers[source].taken + 1);
      Patience patience(task_);
      std::uint32_t count = peek_acquire(ready);
#pragma unroll 1
      while (!reached(count, before + 1)) {
        if (shared_.failed.look() != 0 || !patience.more(message)) {
          shared_.failed.raise_to(1);
          shared_.taking_failed[group_.lane] = true;
          break;
        }
        count = peek_acquire(ready);
      }
      // Of what lies there, only that of this kernel counts: later chunks are of later calls.
      shared_.there[source][group_.lane] = task_.overwrites ? 1 : count - before;
    }
    // What is taken may lie where something is given: not before that was read.
    if (task_.overwrites && group_.thread == 32)
#pragma unroll 1
      while (shared_.read[group_.lane].look() <= round_)
        if (shared_.failed.look() != 0) {
          shared_.taking_failed[group_.lane] = true;
          break;
        }
  }

  const Task& task_;
  LargeShared& shared_;
  const Group& group_;
  const std::uint32_t lane_;
  std::uint32_t round_ = 0;
  std::uint32_t known_ = 0;  // chunks of every source that are there
  std::uint32_t taken_ = 0;  // of the source that this thread looks after
};

// A vector of every source, folded. The next source's are on their way while one's are folded.
template <class Element, class Vector, int unroll, class Task>
__device__ void fold_vectors(const Task& task, const Taking<Task>& taking, const Group& group, std::uint64_t offset,
                             std::uint32_t begin, std::uint32_t end) {
  constexpr std::uint32_t step = group_threads * sizeof(Vector);
  const auto load = [&](int source, std::uint32_t i, Vector(&into)[unroll]) {
    const bool own = source == task.rank;
    const std::byte* const from = own ? task.own + offset : taking.slot(source);
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const std::uint32_t j = i + u * step;
      if (j >= end) continue;
      if constexpr (sizeof(Vector) == 16)
        into[u] = own ? *reinterpret_cast<const Vector*>(from + j) : peek(reinterpret_cast<const Vector*>(from + j));
      else
        into[u] = load_8(from + j, end - j, own ? task.alignment >= 8 : true);
    }
  };
#pragma unroll 1
  for (std::uint32_t i = begin + group.thread * sizeof(Vector); i < end; i += step * unroll) {
    Row<Element, Vector> folded[unroll];
    Vector next[unroll]{};
    load(0, i, next);
#pragma unroll 1
    for (int source = 0; source < task.ranks; ++source) {
      Vector data[unroll];
#pragma unroll
      for (int u = 0; u < unroll; ++u) data[u] = next[u];
      if (source + 1 < task.ranks) load(source + 1, i, next);
      if (source == task.rank && task.scales)
#pragma unroll
        for (int u = 0; u < unroll; ++u) data[u] = multiplied<Element>(task, data[u]);
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const auto row = Row<Element, Vector>::load(data[u]);
        if (source == 0)
          folded[u] = row;
        else
          folded[u].fold(static_cast<Operation>(task.op), row);
      }
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const std::uint32_t j = i + u * step;
      if (j >= end) continue;
      if (task.divides != 0) folded[u].divide(task.divides);
      std::byte* const to = task.target + offset + j;
      if constexpr (sizeof(Vector) == 16)
        *reinterpret_cast<Vector*>(to) = folded[u].store();
      else
        store_8(to, folded[u].store(), end - j, task.alignment >= 8);
    }
  }
}

template <class Element, class Task>
__device__ void take_and_fold(const Task& task, LargeShared& shared, const Group& group) {
  const Piece piece{nullptr, task.own_bytes};  // every source's is like it
  const std::uint32_t lane = first_lane() + static_cast<std::uint32_t>(group.lane);
  Taking<Task> taking(task, shared, group);
#pragma unroll 1
  for (std::uint32_t round = 0;; ++round) {
    const auto [offset, bytes] = chunk_of(piece, task.take_cut(0), lane, round);
    if (bytes == 0) break;
    if (!taking.wait()) return;
    const std::uint32_t whole = task.alignment == 16 ? bytes / 16 * 16 : 0;
    constexpr int unroll = sizeof(typename Element::Stored) == 1 ? 2 : 4;  // what the registers hold
    fold_vectors<Element, uint4, unroll>(task, taking, group, offset, 0, whole);
    if (whole < bytes) fold_vectors<Element, uint2, 1>(task, taking, group, offset, whole, bytes);
    taking.free();
  }
  taking.count();
}

// One chunk, from the rank's own memory or from its window.
template <class Element>
__device__ void copy_chunk(const Terms& terms, const Group& group, std::byte* to, const std::byte* from,
                           std::uint32_t bytes, bool own) {
  constexpr int unroll = 8;
  constexpr std::uint32_t step = group_threads * 16;
  const std::uint32_t whole = terms.alignment == 16 ? bytes / 16 * 16 : 0;
#pragma unroll 1
  for (std::uint32_t i = group.thread * 16; i < whole; i += step * unroll) {
    uint4 data[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint32_t j = i + u * step; j < whole) {
        const auto* const vector = reinterpret_cast<const uint4*>(from + j);
        data[u] = own ? scaled<Element>(terms, *vector) : peek(vector);
      }
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint32_t j = i + u * step; j < whole) *reinterpret_cast<uint4*>(to + j) = data[u];
  }
#pragma unroll 1
  for (std::uint32_t i = whole + group.thread * 8; i < bytes; i += group_threads * 8) {
    uint2 data = load_8(from + i, bytes - i, own ? terms.alignment >= 8 : true);
    if (own) data = scaled<Element>(terms, data);
    store_8(to + i, data, bytes - i, terms.alignment >= 8);
  }
}

template <class Element, class Task>
__device__ void take_and_copy(const Task& task, LargeShared& shared, const Group& group) {
  const std::uint32_t lane = first_lane() + static_cast<std::uint32_t>(group.lane);
  // The rank's own piece waits for nobody: a part of it after each chunk, so that both are done at the same time.
  const std::uint64_t own_step = std::uint64_t{gridDim.x} * lanes_in_block * largest_chunk;
  std::uint64_t own = lane * largest_chunk;
  const auto copy_own = [&] {
    if (own >= task.own_bytes) return;
    copy_chunk<Element>(task, group, task.target + own, task.own + own,
                        static_cast<std::uint32_t>(min(task.own_bytes - own, std::uint64_t{largest_chunk})), true);
    own += own_step;
  };
  Taking<Task> taking(task, shared, group);
#pragma unroll 1
  for (;;) {
    bool more = false;
#pragma unroll 1
    for (int source = 0; source < task.ranks; ++source) more = more || taking.chunk(source).bytes != 0;
    if (!more) break;
    if (!taking.wait()) return;
#pragma unroll 1
    for (int source = 0; source < task.ranks; ++source) {
      const auto [offset, bytes] = taking.chunk(source);
      if (bytes != 0)
        copy_chunk<Element>(task, group, task.take(source).data + offset, taking.slot(source), bytes, false);
    }
    taking.free();
    copy_own();
  }
  taking.count();
#pragma unroll 1
  while (own < task.own_bytes) copy_own();
}

}  // namespace paceline::cuda
