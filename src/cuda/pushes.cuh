// Long folds whose inputs are pushed (direct.h): a rank stores its parts into the windows of those who fold them, and
// what these have folded into the outputs where they lie. Nothing is loaded from another rank: requests of loads take a
// tenth of the way back, and a multiprocessor's stores to a peer hold up its loads.
//
// So half of the blocks push, the others fold. A warp that pushes and its like that folds have a lane, and in the
// window a ring of chunks of 2 KB (window.h). The last warp of a pushing block announces what its others have stored,
// as much as there is with one fence; who folds waits for the counts, and tells from time to time how many of its
// chunks are read.
//
// Every rank has told of this call before anything is pushed (exchange_direct.cuh), so all that came before is taken,
// also chunks of another length in the same memory. Nor does a kernel end before all of its chunks are.
//
// Measured on two H200: 357 GB/s each way, of 366 that stores alone reach; loaded, 339 to 345.
#pragma once

#include "cuda/clerk.cuh"
#include "cuda/fold.cuh"
#include "cuda/memory.cuh"
#include "cuda/shared_word.cuh"
#include "cuda/strips.cuh"

namespace paceline::cuda {

// What the warps of a block that pushes tell its last one.
struct Pushing {
  // Rounds of each warp that are stored, twice; and one more, if there are no others.
  SharedWord progress[pushing_warps];
  std::uint32_t given[max_gpus][pushing_warps];  // chunks ever, before this kernel
};

// A lane of a call. In round r it has chunk r * lanes + lane of every stretch, of those that are long enough.
struct PushLane {
  const DirectTask& task;
  std::uint32_t lane;
  std::uint32_t lanes;

  __device__ PushLane(const DirectTask& task, int block, int warp)
      : task(task),
        lane(static_cast<std::uint32_t>(block * pushing_warps + warp)),
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

// A thread's vectors of a chunk: those that the stretch has.
using PushedPairs = Pair[push_unroll];
template <class Function>
__device__ void for_each_pair(const Stretch& stretch, std::uint64_t offset, Function function) {
#pragma unroll
  for (int u = 0; u < push_unroll; ++u)
    if (const std::uint64_t at = offset + u * 512 + threadIdx.x % 32 * 16; at < stretch.bytes) function(u, at);
}

// Waits that last, out of line: what is live beside them would have to be saved at each turn.
__device__ __noinline__ inline bool wait_for_push_room(const DirectTask& task, const std::uint32_t* freed, int peer,
                                                       std::uint32_t message, std::uint32_t wanted) {
  Patience patience(task);
#pragma unroll 1
  while (!reached(peek(freed), wanted))
    if (!patience.more(peer, message)) return false;
  return true;
}
// How many chunks have come from the source; fewer than wanted after an alarm.
__device__ __noinline__ inline std::uint32_t wait_for_push(const DirectTask& task, const std::uint32_t* ready,
                                                           int source, std::uint32_t message, std::uint32_t wanted) {
  const Expected its = expected(task, source, message);
  Patience patience(task);
#pragma unroll 1
  for (;;) {
    const std::uint32_t count = peek_acquire(ready);
    if (reached(count, wanted) || !patience.more(its)) return count;
  }
}

// A warp's part of a block that pushes: to one peer after the other, beginning behind this rank, so that not all give
// to one. What the next peer has freed is asked for while a chunk is on its way.
__device__ inline void push(const PushLane& lane, const WarpNumbers& numbers, Pushing& shared, int warp) {
  const DirectTask& task = lane.task;
  const unsigned thread = threadIdx.x % 32;
  const auto peer_at = [&](int i) { return task.rank + i < task.ranks ? task.rank + i : task.rank + i - task.ranks; };
  const auto freed_by = [&](int peer) { return &words(task.windows[task.rank]).freed[peer][lane.lane]; };
  std::uint32_t freed = peek(freed_by(peer_at(1)));
  bool well = true;
  std::uint32_t round = 0;
#pragma unroll 1
  for (;; ++round) {
    bool any = false;
#pragma unroll 1
    for (int i = 1; i < task.ranks && well; ++i) {
      const int peer = peer_at(i);
      const Stretch& stretch = task.stretches[peer];
      const std::uint32_t number = shared.given[peer][warp] + round;
      const std::uint32_t message = numbers.given(peer) + 1;
      const bool has = lane.has(peer, round);
      const std::uint32_t wanted = number + 1 - task.layout.push_slots;
      if (has && __any_sync(0xffffffff, !reached(freed, wanted)))  // its threads may have seen different counts
        well = __all_sync(0xffffffff, wait_for_push_room(task, freed_by(peer), peer, message, wanted));
      freed = peek(freed_by(peer_at(i + 1 < task.ranks ? i + 1 : 1)));
      if (!has || !well) continue;
      any = true;
      PushedPairs pairs;
      for_each_pair(stretch, lane.offset(round), [&](int u, std::uint64_t at) {
        pairs[u] = *reinterpret_cast<const Pair*>(task.input + stretch.input + at);
      });
      std::byte* const slot = lane.slot(peer, task.rank, number) + thread * 16;
      for_each_pair(stretch, lane.offset(round),
                    [&](int u, std::uint64_t) { *reinterpret_cast<Pair*>(slot + u * 512) = pairs[u]; });
    }
    if (!any || !well) break;
    __syncwarp();
    if (thread == 0) shared.progress[warp].raise_to(2 * (round + 1));
  }
  __syncwarp();
  if (thread == 0) shared.progress[warp].raise_to(2 * round + 1);
}

// The last warp: a thread for each other one.
__device__ inline void announce_pushes(const DirectTask& task, Pushing& shared) {
  const int warp = static_cast<int>(threadIdx.x) % 32;
  const bool watches = warp < pushing_warps;
  const PushLane lane(task, static_cast<int>(blockIdx.x), warp);
  WindowWords& mine = words(task.windows[task.rank]);
  std::uint32_t told = 0;
  bool ended = !watches;
#pragma unroll 1
  while (!__all_sync(0xffffffff, ended)) {
    const std::uint32_t progress = watches ? shared.progress[warp].look() : 0;
    const std::uint32_t stored = progress / 2;
    ended = ended || (progress & 1) != 0;
    if (!__any_sync(0xffffffff, stored != told)) continue;
    fence_system();  // the chunks come before their counts, for whoever acquires those
#pragma unroll 1
    for (int peer = 0; peer < task.ranks; ++peer) {
      if (peer == task.rank || stored == told) continue;
      const std::uint32_t chunks = lane.chunks(peer, stored);
      if (chunks <= told) continue;
      const std::uint32_t count = shared.given[peer][warp] + chunks;
      post(&words(task.windows[peer]).ready[task.rank][lane.lane], count);
      post(&mine.chunks_given[peer][lane.lane], count);
    }
    told = stored;
  }
}

// A warp's part of a block that folds.
template <class Element, bool two>
class PushedFold {
  using Rows = Row<Element, Pair>[push_unroll];

 public:
  __device__ PushedFold(const PushLane& lane, const WarpNumbers& numbers, std::byte* const* outputs)
      : task_(lane.task), lane_(lane), numbers_(numbers), stretch_(task_.stretches[task_.rank]), outputs_(outputs) {}

  // In the order of the ranks. A thread p has the counts of what comes from rank p.
  __device__ void run() {
    WindowWords& mine = words(task_.windows[task_.rank]);
    const int source = thread();
    const bool counts = source < task_.ranks && source != task_.rank;
    if (counts) taken_ = peek(&mine.chunks_taken[source][lane_.lane]);
    known_ = taken_;
    std::uint32_t round = 0;
    std::uint32_t freed = 0;
    const auto free = [&] {
      __syncwarp();
      if (counts && freed != round) post(&words(task_.windows[source]).freed[task_.rank][lane_.lane], taken_ + round);
      freed = round;
    };
    PushedPairs next;  // of this rank's own, on its way while a round is folded
    load(0, next);
#pragma unroll 1
    while (lane_.has(task_.rank, round)) {
      if (!wait(counts, round)) return;  // after an alarm the communicator has ended, and its numbers are of no use
      const std::uint64_t offset = lane_.offset(round);
      PushedPairs pairs;
#pragma unroll
      for (int u = 0; u < push_unroll; ++u) pairs[u] = next[u];
      load(round + 1, next);
      fold(round, offset, pairs);
      store(offset, pairs);
      ++round;
      if (round - freed >= task_.layout.push_slots / 4) free();
    }
    free();
    if (counts) post(&mine.chunks_taken[source][lane_.lane], taken_ + round);
  }

 private:
  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ void load(std::uint32_t round, PushedPairs& pairs) const {
    for_each_pair(stretch_, lane_.offset(round), [&](int u, std::uint64_t at) {
      pairs[u] = *reinterpret_cast<const Pair*>(task_.input + stretch_.input + at);
    });
  }
  // This round's chunk of every source is there.
  __device__ bool wait(bool counts, std::uint32_t round) {
    const std::uint32_t wanted = taken_ + round + 1;
    if (counts && !reached(known_, wanted))
      known_ = wait_for_push(task_, &words(task_.windows[task_.rank]).ready[thread()][lane_.lane], thread(),
                             numbers_.taken() + 1, wanted);
    return __all_sync(0xffffffff, !counts || reached(known_, wanted));
  }
  __device__ void look(int source, std::uint32_t round, std::uint64_t offset, PushedPairs& pairs) const {
    const std::uint32_t number = __shfl_sync(0xffffffff, taken_, source) + round;
    const std::byte* const slot = lane_.slot(task_.rank, source, number) + thread() * 16;
    for_each_pair(stretch_, offset,
                  [&](int u, std::uint64_t) { pairs[u] = peek(reinterpret_cast<const Pair*>(slot + u * 512)); });
  }
  // own: this rank's; then the result.
  __device__ void fold(std::uint32_t round, std::uint64_t offset, PushedPairs& own) const {
    const auto op = static_cast<Operation>(task_.op);
    PushedPairs other;
    if constexpr (two) {
      look(1 - task_.rank, round, offset, other);
      const bool first = task_.rank == 0;
#pragma unroll
      for (int u = 0; u < push_unroll; ++u) {
        const Pair left{first ? own[u].x : other[u].x, first ? own[u].y : other[u].y};
        const Pair right{first ? other[u].x : own[u].x, first ? other[u].y : own[u].y};
        own[u] = fold_of_two<Element>(op, task_.divides != 0, left, right);
      }
    } else {
      Rows folded;
#pragma unroll 1
      for (int source = 0; source < task_.ranks; ++source) {
        if (source != task_.rank) look(source, round, offset, other);
#pragma unroll
        for (int u = 0; u < push_unroll; ++u) {
          const auto next = Row<Element, Pair>::load(source == task_.rank ? own[u] : other[u]);
          if (source == 0)
            folded[u] = next;
          else
            folded[u].fold(op, next);
        }
      }
#pragma unroll
      for (int u = 0; u < push_unroll; ++u) own[u] = finished(task_, folded[u]);
    }
  }
  // To all that get it, beginning behind this rank.
  __device__ void store(std::uint64_t offset, const PushedPairs& results) const {
#pragma unroll 1
    for (int i = 1; i <= task_.ranks; ++i) {
      const int to = task_.rank + i < task_.ranks ? task_.rank + i : task_.rank + i - task_.ranks;
      if ((stretch_.to >> to & 1) == 0) continue;
      std::byte* const into = outputs_[to] + stretch_.output;
      for_each_pair(stretch_, offset,
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

// A block's part. All threads call it.
template <class Element, bool two>
__device__ void push_and_fold(const DirectTask& task, const WarpNumbers& numbers, std::byte* const* outputs) {
  __shared__ Pushing shared;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int pushing = static_cast<int>(task.link_blocks);
  const int block = static_cast<int>(blockIdx.x);
  const PushLane lane(task, block < pushing ? block : block - pushing, warp);
  if (block >= pushing) {
    if (warp < pushing_warps) PushedFold<Element, two>(lane, numbers, outputs).run();
    return;
  }
  if (warp < pushing_warps) {
    const int peer = static_cast<int>(threadIdx.x) % 32;
    if (peer < task.ranks)
      shared.given[peer][warp] = peek(&words(task.windows[task.rank]).chunks_given[peer][lane.lane]);
    if (peer == 0) shared.progress[warp].clear();
  }
  __syncthreads();
  if (warp < pushing_warps)
    push(lane, numbers, shared, warp);
  else if (warp == pushing_warps)
    announce_pushes(task, shared);
}

}  // namespace paceline::cuda
