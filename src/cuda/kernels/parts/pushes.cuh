// Long folds whose inputs are pushed (direct.h): a rank stores its parts into the windows of those who fold them, and
// what these have folded into the outputs where they lie. Nothing is loaded from another rank: requests of loads take a
// tenth of the way back, and a multiprocessor's stores to a peer hold up its loads.
//
// So half of the blocks push, the others fold. A warp that pushes and its like that folds have a lane, and in the
// window a ring of chunks of 2 KB (window.h). The last warp of a pushing block tells what its others have stored
// (pushed_lanes.cuh); who folds waits for the counts, and tells from time to time how many of its chunks are read: by
// itself, for a warp that looks after that slows those that fold.
//
// Every rank has told of this call before anything is pushed (exchange_direct.cuh), so all that came before is taken,
// also chunks of another length in the same memory. Nor does a kernel end before all of its chunks are.
//
// Measured on four H200: 342 GB/s each way; loaded, 322. Of two ranks this and passes.cuh are one.
#pragma once

#include "cuda/kernels/parts/clerk.cuh"
#include "cuda/kernels/parts/fold.cuh"
#include "cuda/kernels/parts/memory.cuh"
#include "cuda/kernels/parts/pushed_lanes.cuh"
#include "cuda/kernels/parts/strips.cuh"

namespace paceline::cuda {

// A lane of a call. In round r it has chunk r * lanes + lane of every stretch, of those that are long enough.
struct PushLane {
  const DirectTask& task;
  std::uint32_t lane;
  std::uint32_t word;  // its, among all lanes'
  std::uint32_t lanes;

  __device__ PushLane(const DirectTask& task, int block, int warp)
      : task(task),
        lane(static_cast<std::uint32_t>(block * pushing_warps + warp)),
        word(word_of_lane(static_cast<std::uint32_t>(block), warp)),
        lanes(task.link_blocks * pushing_warps) {}

  [[nodiscard]] __device__ std::uint64_t offset(std::uint32_t round) const {
    return (static_cast<std::uint64_t>(round) * lanes + lane) * push_chunk;
  }
  [[nodiscard]] __device__ bool has(int rank, std::uint32_t round) const {
    return offset(round) < task.stretches[rank].bytes;
  }
  // Of the first `rounds` rounds, chunks of the stretch that `rank` folds.
  [[nodiscard]] __device__ std::uint32_t chunks(int rank, std::uint32_t rounds) const {
    const auto all = static_cast<std::uint32_t>((task.stretches[rank].bytes + push_chunk - 1) / push_chunk);
    return lane < all ? min(rounds, (all - 1 - lane) / lanes + 1) : 0;
  }
  [[nodiscard]] __device__ std::byte* slot(int owner, int source, std::uint32_t number) const {
    return task.windows[owner] + task.layout.pushed(place_of(source, owner), lane, number);
  }
};

using PushedPairs = Pair[push_unroll];    // of a thread
inline constexpr int pushes_at_once = 2;  // of a warp, to as many peers

// A warp's part of a block that pushes: to one peer after the other, beginning behind this rank, so that not all give
// to one. Of a round the chunks for a few peers are on their way at once. Thread i has the counts of the i-th peer.
class Pusher {
 public:
  __device__ Pusher(const PushLane& lane, const WarpNumbers& numbers, Progress& progress, int warp)
      : task_(lane.task),
        lane_(lane),
        progress_(progress),
        warp_(warp),
        message_(numbers.given(peer_at(thread() < task_.ranks ? thread() : 0)) + 1) {}

  // False: given up.
  __device__ bool run() {
    std::uint32_t round = 0;
    bool well = true;
    look_for_room();
#pragma unroll 1
    for (bool any = true; any; ++round) {
      well = wait_for_room(round);
      if (!well) break;
      any = false;
      look_for_room();  // for the next round
#pragma unroll 1
      for (int first = 1; first < task_.ranks; first += pushes_at_once) any = push(round, first) || any;
      tell(2 * (round + 1));
    }
    tell(2 * round + 1);
    return well;
  }

 private:
  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ int peer_at(int i) const {
    return task_.rank + i < task_.ranks ? task_.rank + i : task_.rank + i - task_.ranks;
  }
  [[nodiscard]] __device__ bool counts() const { return thread() > 0 && thread() < task_.ranks; }
  [[nodiscard]] __device__ const std::uint32_t* freed_by(int peer) const {
    return &words(task_.windows[task_.rank]).freed[peer][lane_.word];
  }
  __device__ void tell(std::uint32_t progress) const {
    __syncwarp();
    if (thread() == 0) progress_.given[warp_].raise_to(progress);
  }
  __device__ void look_for_room() {
    if (counts()) freed_ = peek(freed_by(peer_at(thread())));
  }
  // For a chunk to each peer. False after an alarm.
  __device__ bool wait_for_room(std::uint32_t round) const {
    bool well = true;
    if (const int peer = peer_at(thread()); counts() && lane_.has(peer, round)) {
      const std::uint32_t wanted = progress_.given_before[peer][warp_] + round + 1 - task_.layout.push_slots;
      if (!reached(freed_, wanted)) well = wait_for_freed(task_, freed_by(peer), peer, message_, wanted);
    }
    return __all_sync(0xffffffff, well);
  }
  // To a few peers. False: none has a chunk in this round.
  __device__ bool push(std::uint32_t round, int first) const {
    const int behind = min(first + pushes_at_once, task_.ranks);
    bool any = false;
    PushedPairs pairs[pushes_at_once];
#pragma unroll
    for (int k = 0; k < pushes_at_once; ++k) {
      if (first + k >= behind) continue;
      const Stretch& stretch = task_.stretches[peer_at(first + k)];
      any = any || lane_.offset(round) < stretch.bytes;
      for_each_pair<push_unroll>(stretch, lane_.offset(round), [&](int u, std::uint64_t at) {
        pairs[k][u] = *reinterpret_cast<const Pair*>(task_.input + stretch.input + at);
      });
    }
#pragma unroll
    for (int k = 0; k < pushes_at_once; ++k) {
      if (first + k >= behind) continue;
      const int peer = peer_at(first + k);
      std::byte* const slot = lane_.slot(peer, task_.rank, progress_.given_before[peer][warp_] + round) + thread() * 16;
      for_each_pair<push_unroll>(task_.stretches[peer], lane_.offset(round),
                                 [&](int u, std::uint64_t) { *reinterpret_cast<Pair*>(slot + u * 512) = pairs[k][u]; });
    }
    return any;
  }

  const DirectTask& task_;
  const PushLane lane_;
  Progress& progress_;
  const int warp_;
  const std::uint32_t message_;  // to the thread's peer
  std::uint32_t freed_ = 0;      // by it, as far as is known
};

// The last warp of a block that pushes. lane: that of the warp of which a thread tells.
__device__ inline void announce_pushes(const DirectTask& task, Progress& progress, const PushLane& lane) {
  WindowWords& mine = words(task.windows[task.rank]);
  announce_progress(
      progress,
      [&](int warp, std::uint32_t from, std::uint32_t to) {
#pragma unroll 1
        for (int peer = 0; peer < task.ranks; ++peer) {
          const std::uint32_t chunks = peer == task.rank ? 0 : lane.chunks(peer, to);
          if (chunks <= from) continue;
          const std::uint32_t count = progress.given_before[peer][warp] + chunks;
          post(&words(task.windows[peer]).ready[task.rank][lane.word], count);
          post(&mine.chunks_given[peer][lane.word], count);
        }
      },
      [](int, std::uint32_t) {});
}

// A warp's part of a block that folds.
template <class Element>
class PushedFold {
  using Rows = Row<Element, Pair>[push_unroll];
  static constexpr int at_once = 4;  // ranks whose rows the registers hold

 public:
  __device__ PushedFold(const PushLane& lane, const WarpNumbers& numbers, std::byte* const* outputs)
      : task_(lane.task), lane_(lane), numbers_(numbers), stretch_(task_.stretches[task_.rank]), outputs_(outputs) {}

  // In the order of the ranks. A thread p has the counts of what comes from rank p. False: given up.
  __device__ bool run() {
    WindowWords& mine = words(task_.windows[task_.rank]);
    const int source = thread();
    const bool counts = this->counts();
    if (counts) taken_ = peek(&mine.chunks_taken[source][lane_.word]);
    known_ = taken_;
    std::uint32_t round = 0;
    std::uint32_t freed = 0;
    const auto free = [&] {
      __syncwarp();
      if (counts && freed != round) post(&words(task_.windows[source]).freed[task_.rank][lane_.word], taken_ + round);
      freed = round;
    };
#pragma unroll 1
    while (lane_.has(task_.rank, round)) {
      if (!wait(round)) return false;  // after an alarm the communicator has ended, and its numbers are of no use
      const std::uint64_t offset = lane_.offset(round);
      PushedPairs results;
      if (task_.ranks <= at_once)
        fold_few(round, offset, results);
      else
        fold_many(round, offset, results);
      store(offset, results);
      ++round;
      if (round - freed >= task_.layout.push_slots / 4) free();
    }
    free();
    if (counts) post(&mine.chunks_taken[source][lane_.word], taken_ + round);
    return true;
  }

 private:
  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ bool counts() const { return thread() < task_.ranks && thread() != task_.rank; }
  [[nodiscard]] __device__ const std::uint32_t* ready() const {
    return &words(task_.windows[task_.rank]).ready[thread()][lane_.word];
  }
  [[nodiscard]] __device__ Operation operation() const { return static_cast<Operation>(task_.op); }

  __device__ void load(std::uint32_t round, PushedPairs& pairs) const {
    for_each_pair<push_unroll>(stretch_, lane_.offset(round), [&](int u, std::uint64_t at) {
      pairs[u] = *reinterpret_cast<const Pair*>(task_.input + stretch_.input + at);
    });
  }
  // This round's chunk of every source is there.
  __device__ bool wait(std::uint32_t round) {
    const std::uint32_t wanted = taken_ + round + 1;
    if (counts() && !reached(known_, wanted))
      known_ = wait_for_ready(task_, ready(), thread(), numbers_.taken() + 1, wanted);
    const bool well = __all_sync(0xffffffff, !counts() || reached(known_, wanted)) != 0;
    __syncwarp();  // what the threads acquired, for all
    return well;
  }
  // What has come meanwhile: asked for while this round's chunks are on their way.
  __device__ void look_ahead() {
    if (counts()) known_ = peek_acquire(ready());
  }
  __device__ void look(int source, std::uint32_t round, std::uint64_t offset, PushedPairs& pairs) const {
    const std::uint32_t number = __shfl_sync(0xffffffff, taken_, source) + round;
    const std::byte* const slot = lane_.slot(task_.rank, source, number) + thread() * 16;
    for_each_pair<push_unroll>(stretch_, offset, [&](int u, std::uint64_t) {
      pairs[u] = peek(reinterpret_cast<const Pair*>(slot + u * 512));
    });
  }
  // All rows are on their way at once, of half a chunk at a time: one row after the other, their ways to the L2 cache
  // are the time it takes.
  __device__ void fold_few(std::uint32_t round, std::uint64_t offset, PushedPairs& results) {
    constexpr int half = push_unroll / 2;
    const auto at = [&](int u) { return offset + u * 512 + thread() * 16; };
#pragma unroll
    for (int begin = 0; begin < push_unroll; begin += half) {
      Pair rows[at_once][half];
#pragma unroll
      for (int source = 0; source < at_once; ++source) {
        if (source >= task_.ranks) continue;
        const bool own = source == task_.rank;
        const std::uint32_t number = __shfl_sync(0xffffffff, taken_, source) + round;
        const std::byte* const from =
            own ? task_.input + stretch_.input + at(0) : lane_.slot(task_.rank, source, number) + thread() * 16;
#pragma unroll
        for (int u = 0; u < half; ++u)
          if (at(begin + u) < stretch_.bytes)
            rows[source][u] = peek(reinterpret_cast<const Pair*>(from + (begin + u) * 512));
      }
      if (begin == 0) look_ahead();
#pragma unroll
      for (int u = 0; u < half; ++u) {
        auto folded = Row<Element, Pair>::load(rows[0][u]);
#pragma unroll
        for (int source = 1; source < at_once; ++source)
          if (source < task_.ranks) folded.fold(operation(), Row<Element, Pair>::load(rows[source][u]));
        results[begin + u] = folded.store();
      }
    }
    if (task_.divides == 0) return;
#pragma unroll
    for (int u = 0; u < push_unroll; ++u) results[u] = quotient<Element>(results[u], task_.divides);
  }
  __device__ void fold_many(std::uint32_t round, std::uint64_t offset, PushedPairs& results) const {
    Rows folded;
#pragma unroll 1
    for (int source = 0; source < task_.ranks; ++source) {
      if (source == task_.rank)
        load(round, results);
      else
        look(source, round, offset, results);
#pragma unroll
      for (int u = 0; u < push_unroll; ++u) {
        const auto next = Row<Element, Pair>::load(results[u]);
        if (source == 0)
          folded[u] = next;
        else
          folded[u].fold(operation(), next);
      }
    }
#pragma unroll
    for (int u = 0; u < push_unroll; ++u) results[u] = finished(task_, folded[u]);
  }
  // To all that get it, beginning behind this rank.
  __device__ void store(std::uint64_t offset, const PushedPairs& results) const {
#pragma unroll 1
    for (int i = 1; i <= task_.ranks; ++i) {
      const int to = task_.rank + i < task_.ranks ? task_.rank + i : task_.rank + i - task_.ranks;
      if ((stretch_.to >> to & 1) == 0) continue;
      std::byte* const into = outputs_[to] + stretch_.output;
      for_each_pair<push_unroll>(stretch_, offset,
                                 [&](int u, std::uint64_t at) { *reinterpret_cast<Pair*>(into + at) = results[u]; });
    }
  }

  const DirectTask& task_;
  const PushLane lane_;
  const WarpNumbers& numbers_;
  const Stretch& stretch_;
  std::byte* const* const outputs_;
  std::uint32_t taken_ = 0;  // chunks ever, before this kernel
  std::uint32_t known_ = 0;  // that have come
};

// A block's part. All threads call it. False: this one has given up.
template <class Element>
__device__ bool push_and_fold(const DirectTask& task, const WarpNumbers& numbers, std::byte* const* outputs) {
  __shared__ Progress progress;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int thread = static_cast<int>(threadIdx.x) % 32;
  const int pushing = static_cast<int>(task.link_blocks);
  const int block = static_cast<int>(blockIdx.x);
  // The threads of the last warp have the lanes of the others.
  const PushLane lane(task, block < pushing ? block : block - pushing, warp < pushing_warps ? warp : thread);
  if (block >= pushing) return warp >= pushing_warps || PushedFold<Element>(lane, numbers, outputs).run();
  if (warp < pushing_warps) progress.begin(task, warp, lane.word);
  __syncthreads();
  if (warp < pushing_warps) return Pusher(lane, numbers, progress, warp).run();
  if (warp == pushing_warps) announce_pushes(task, progress, lane);
  return true;
}

}  // namespace paceline::cuda
