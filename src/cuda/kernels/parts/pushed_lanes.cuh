// The lanes of folds that are pushed or passed on (pushes.cuh, passes.cuh), a warp each: the vectors of a chunk, and
// how far the warps are.
//
// That the last warp of a block tells the other ranks, with one fence for what all others have stored meanwhile and one
// store of all their words, which lie side by side. A store of one word keeps the link as busy as one of many: a word
// from each warp for every 8 KB that it took cost 3% of the speed.
#pragma once

#include "cuda/kernels/parts/clerk.cuh"
#include "cuda/kernels/parts/shared_word.cuh"
#include "cuda/kernels/parts/strips.cuh"

namespace paceline::cuda {

// A thread's vectors of a chunk that begins at `offset` of the stretch: those that the stretch has.
template <int unroll, class Function>
__device__ void for_each_pair(const Stretch& stretch, std::uint64_t offset, Function function) {
#pragma unroll
  for (int u = 0; u < unroll; ++u)
    if (const std::uint64_t at = offset + u * 512 + threadIdx.x % 32 * 16; at < stretch.bytes) function(u, at);
}

// Waits that last, out of line: what is live beside them would have to be saved at each turn.
__device__ __noinline__ inline bool wait_for_freed(const DirectTask& task, const std::uint32_t* freed, int peer,
                                                   std::uint32_t message, std::uint32_t wanted) {
  Patience patience(task);
#pragma unroll 1
  while (!reached(peek(freed), wanted))
    if (!patience.more(peer, message, task.count_to(peer))) return false;
  return true;
}
// How many chunks have come from the source; fewer than wanted after an alarm.
__device__ __noinline__ inline std::uint32_t wait_for_ready(const DirectTask& task, const std::uint32_t* ready,
                                                            int source, std::uint32_t message, std::uint32_t wanted) {
  const Expected its = expected(task, source, message);
  Patience patience(task);
#pragma unroll 1
  for (;;) {
    const std::uint32_t count = peek_acquire(ready);
    if (reached(count, wanted) || !patience.more(its)) return count;
  }
}

// What the warps tell the last one, since the kernel began.
struct Progress {
  SharedWord given[pushing_warps];  // what is stored, twice; and one more, if there is nothing to come
  SharedWord told[pushing_warps];   // of what is stored, what others know of
  SharedWord taken[pushing_warps];  // what may be overwritten
  // Chunks ever, before this kernel, to and from each rank.
  std::uint32_t given_before[max_gpus][pushing_warps];
  std::uint32_t taken_before[max_gpus][pushing_warps];

  // By each warp, with a barrier behind it. word: of its lane.
  __device__ void begin(const DirectTask& task, int warp, std::uint32_t word) {
    const WindowWords& mine = words(task.windows[task.rank]);
    const int peer = static_cast<int>(threadIdx.x) % 32;
    if (peer < task.ranks) {
      given_before[peer][warp] = peek(&mine.chunks_given[peer][word]);
      taken_before[peer][warp] = peek(&mine.chunks_taken[peer][word]);
    }
    if (peer != 0) return;
    given[warp].clear();
    told[warp].clear();
    taken[warp].clear();
  }
};

// The last warp: a thread for each other one. tell_given(warp, from, to), tell_taken(warp, to).
template <class Given, class Taken>
__device__ void announce_progress(Progress& progress, Given tell_given, Taken tell_taken) {
  const int warp = static_cast<int>(threadIdx.x) % 32;
  const bool watches = warp < pushing_warps;
  std::uint32_t given = 0;
  std::uint32_t taken = 0;
  bool ended = !watches;
#pragma unroll 1
  while (!__all_sync(0xffffffff, ended)) {
    const std::uint32_t word = watches ? progress.given[warp].look() : 0;
    const std::uint32_t now_taken = watches ? progress.taken[warp].look() : 0;
    ended = ended || (word & 1) != 0;
    if (now_taken != taken) tell_taken(warp, now_taken);
    taken = now_taken;
    const std::uint32_t stored = word / 2;
    if (!__any_sync(0xffffffff, stored != given)) continue;
    fence_system();  // the chunks come before their counts, for whoever acquires those
    if (stored != given) {
      tell_given(warp, given, stored);
      progress.told[warp].raise_to(stored);
    }
    given = stored;
  }
}

}  // namespace paceline::cuda
