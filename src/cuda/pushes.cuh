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
// Measured on two H200: 357 GB/s each way, of 366 that stores alone reach; loaded, 339 to 345. On four: 342; 322.
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
inline constexpr int pushes_at_once = 2;  // of a warp, to as many peers
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
// to one. Of a round the chunks for a few peers are on their way at once. Thread i has the counts of the i-th peer.
class Pusher {
 public:
  __device__ Pusher(const PushLane& lane, const WarpNumbers& numbers, Pushing& shared, int warp)
      : task_(lane.task),
        lane_(lane),
        shared_(shared),
        warp_(warp),
        message_(numbers.given(peer_at(thread() < task_.ranks ? thread() : 0)) + 1) {}

  __device__ void run() {
    std::uint32_t round = 0;
    look_for_room();
#pragma unroll 1
    for (bool any = true; any && wait_for_room(round); ++round) {
      any = false;
      look_for_room();  // for the next round
#pragma unroll 1
      for (int first = 1; first < task_.ranks; first += pushes_at_once) any = push(round, first) || any;
      tell(2 * (round + 1));
    }
    tell(2 * round + 1);
  }

 private:
  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ int peer_at(int i) const {
    return task_.rank + i < task_.ranks ? task_.rank + i : task_.rank + i - task_.ranks;
  }
  [[nodiscard]] __device__ bool counts() const { return thread() > 0 && thread() < task_.ranks; }
  [[nodiscard]] __device__ const std::uint32_t* freed_by(int peer) const {
    return &words(task_.windows[task_.rank]).freed[peer][lane_.lane];
  }
  __device__ void tell(std::uint32_t progress) const {
    __syncwarp();
    if (thread() == 0) shared_.progress[warp_].raise_to(progress);
  }
  __device__ void look_for_room() {
    if (counts()) freed_ = peek(freed_by(peer_at(thread())));
  }
  // For a chunk to each peer. False after an alarm.
  __device__ bool wait_for_room(std::uint32_t round) const {
    bool well = true;
    if (const int peer = peer_at(thread()); counts() && lane_.has(peer, round)) {
      const std::uint32_t wanted = shared_.given[peer][warp_] + round + 1 - task_.layout.push_slots;
      if (!reached(freed_, wanted)) well = wait_for_push_room(task_, freed_by(peer), peer, message_, wanted);
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
      for_each_pair(stretch, lane_.offset(round), [&](int u, std::uint64_t at) {
        pairs[k][u] = *reinterpret_cast<const Pair*>(task_.input + stretch.input + at);
      });
    }
#pragma unroll
    for (int k = 0; k < pushes_at_once; ++k) {
      if (first + k >= behind) continue;
      const int peer = peer_at(first + k);
      std::byte* const slot = lane_.slot(peer, task_.rank, shared_.given[peer][warp_] + round) + thread() * 16;
      for_each_pair(task_.stretches[peer], lane_.offset(round),
                    [&](int u, std::uint64_t) { *reinterpret_cast<Pair*>(slot + u * 512) = pairs[k][u]; });
    }
    return any;
  }

  const DirectTask& task_;
  const PushLane lane_;
  Pushing& shared_;
  const int warp_;
  const std::uint32_t message_;  // to the thread's peer
  std::uint32_t freed_ = 0;      // by it, as far as is known
};

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
  static constexpr int at_once = 4;  // ranks whose rows the registers hold

 public:
  __device__ PushedFold(const PushLane& lane, const WarpNumbers& numbers, std::byte* const* outputs)
      : task_(lane.task), lane_(lane), numbers_(numbers), stretch_(task_.stretches[task_.rank]), outputs_(outputs) {}

  // In the order of the ranks. A thread p has the counts of what comes from rank p.
  __device__ void run() {
    WindowWords& mine = words(task_.windows[task_.rank]);
    const int source = thread();
    const bool counts = this->counts();
    if (counts) taken_ = peek(&mine.chunks_taken[source][lane_.lane]);
    known_ = taken_;
    std::uint32_t round = 0;
    std::uint32_t freed = 0;
    const auto free = [&] {
      __syncwarp();
      if (counts && freed != round) post(&words(task_.windows[source]).freed[task_.rank][lane_.lane], taken_ + round);
      freed = round;
    };
    PushedPairs next;  // of two ranks: this one's own, on its way while a round is folded
    if constexpr (two) load(0, next);
#pragma unroll 1
    while (lane_.has(task_.rank, round)) {
      if (!wait(round)) return;  // after an alarm the communicator has ended, and its numbers are of no use
      const std::uint64_t offset = lane_.offset(round);
      PushedPairs results;
      if constexpr (two) {
#pragma unroll
        for (int u = 0; u < push_unroll; ++u) results[u] = next[u];
        load(round + 1, next);
        fold_two(round, offset, results);
      } else if (task_.ranks <= at_once) {
        fold_few(round, offset, results);
      } else {
        fold_many(round, offset, results);
      }
      store(offset, results);
      ++round;
      if (round - freed >= task_.layout.push_slots / 4) free();
    }
    free();
    if (counts) post(&mine.chunks_taken[source][lane_.lane], taken_ + round);
  }

 private:
  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ bool counts() const { return thread() < task_.ranks && thread() != task_.rank; }
  [[nodiscard]] __device__ const std::uint32_t* ready() const {
    return &words(task_.windows[task_.rank]).ready[thread()][lane_.lane];
  }
  [[nodiscard]] __device__ Operation operation() const { return static_cast<Operation>(task_.op); }

  __device__ void load(std::uint32_t round, PushedPairs& pairs) const {
    for_each_pair(stretch_, lane_.offset(round), [&](int u, std::uint64_t at) {
      pairs[u] = *reinterpret_cast<const Pair*>(task_.input + stretch_.input + at);
    });
  }
  // This round's chunk of every source is there.
  __device__ bool wait(std::uint32_t round) {
    const std::uint32_t wanted = taken_ + round + 1;
    if (counts() && !reached(known_, wanted))
      known_ = wait_for_push(task_, ready(), thread(), numbers_.taken() + 1, wanted);
    return __all_sync(0xffffffff, !counts() || reached(known_, wanted));
  }
  // What has come meanwhile: asked for while this round's chunks are on their way.
  __device__ void look_ahead() {
    if (counts()) known_ = peek_acquire(ready());
  }
  __device__ void look(int source, std::uint32_t round, std::uint64_t offset, PushedPairs& pairs) const {
    const std::uint32_t number = __shfl_sync(0xffffffff, taken_, source) + round;
    const std::byte* const slot = lane_.slot(task_.rank, source, number) + thread() * 16;
    for_each_pair(stretch_, offset,
                  [&](int u, std::uint64_t) { pairs[u] = peek(reinterpret_cast<const Pair*>(slot + u * 512)); });
  }
  // own: this rank's; then the result.
  __device__ void fold_two(std::uint32_t round, std::uint64_t offset, PushedPairs& own) {
    PushedPairs other;
    look(1 - task_.rank, round, offset, other);
    look_ahead();
    const bool first = task_.rank == 0;
#pragma unroll
    for (int u = 0; u < push_unroll; ++u) {
      const Pair left{first ? own[u].x : other[u].x, first ? own[u].y : other[u].y};
      const Pair right{first ? other[u].x : own[u].x, first ? other[u].y : own[u].y};
      own[u] = fold_of_two<Element>(operation(), task_.divides != 0, left, right);
    }
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
    Pusher(lane, numbers, shared, warp).run();
  else if (warp == pushing_warps)
    announce_pushes(task, shared);
}

}  // namespace paceline::cuda
