// Reduces whose sums are passed on by strips (strips.cuh), of more than two ranks: as in passes.cuh a rank adds its
// part to what the one before has sent, and sends the sum to the next one; the root has the result. A strip has come
// when it is not blank any more, so each rank takes some 2 us of the way to the root, where a chunk, which is told of
// behind a fence, takes 9. In the windows alone: no rank must see another's buffers, or wait for it at the end.
//
// A warp has a lane, and moves it four strips at a time. The first warp of a block moves no data: it tells who gives to
// the others how many strips are blank again, with one fence for all.
//
// Time: launch + a store over the link for each rank + M/B.
// Source: passes.cuh and strips.cuh. Measured on four H200: 339 GB/s.
#pragma once

#include "cuda/clerk.cuh"
#include "cuda/fold.cuh"
#include "cuda/passes.cuh"
#include "cuda/shared_word.cuh"
#include "cuda/strips.cuh"

namespace paceline::cuda {

// What the warps of a block that move data tell the first one, since the kernel began: how many strips they have taken,
// twice; and one more at their end.
struct PassProgress {
  SharedWord taken[passing_warps];
};

// The lane of such a warp.
__device__ inline std::uint32_t passing_lane(int warp) {
  return blockIdx.x * passing_warps + static_cast<std::uint32_t>(warp);
}

// A warp's part. All of its threads call everything.
template <class Element>
class StripPasser {
  static constexpr int unroll = 4;
  using Link = StripLink<PassTask, unroll, false>;
  using Pairs = typename Link::Pairs;

 public:
  // Touches no memory.
  __device__ StripPasser(const PassTask& task, const RingPlace& place, PassProgress& progress, int warp)
      : task_(task),
        progress_(progress.taken[warp]),
        takes_(place.place > 0),
        gives_(place.place < task.ranks - 1),
        bytes_(static_cast<std::uint32_t>(task.own_bytes)),
        before_(task, place.before, passing_lane(warp), gridDim.x * passing_warps),
        next_(task, place.next, passing_lane(warp), gridDim.x * passing_warps) {}

  __device__ void run() {
    Pairs own;
    next_.load(task_.own, bytes_, 0, own);
    before_.begin();
    next_.begin();
    std::uint32_t taken = 0;
#pragma unroll 1
    for (std::uint32_t round = 0; next_.has(bytes_, round); ++round) {
      // What is stored to another rank holds up loads: so the next round's come before.
      Pairs ahead;
      next_.load(task_.own, bytes_, round + 1, ahead);
      if (takes_) {
        Pairs sums;
        before_.look(bytes_, round, sums);
        before_.settle(bytes_, round, sums);
        taken += before_.strips(bytes_, round);
        __syncwarp();
        if (threadIdx.x % 32 == 0) progress_.raise_to(2 * taken);
        fold(sums, own);
      }
      if (gives_)
        next_.put(bytes_, round, own);
      else
        next_.store(task_.target, bytes_, round, own);
#pragma unroll
      for (int u = 0; u < unroll; ++u) own[u] = ahead[u];
    }
    if (gives_) next_.end_giving();
    __syncwarp();
    if (threadIdx.x % 32 == 0) progress_.raise_to(2 * taken + 1);
  }

 private:
  // This rank's part, to what came.
  __device__ void fold(const Pairs& sums, Pairs& own) const {
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      auto folded = Row<Element, Pair>::load(sums[u]);
      folded.fold(static_cast<Operation>(task_.op), Row<Element, Pair>::load(own[u]));
      own[u] = gives_ ? folded.store() : finished(task_, folded);
    }
  }

  const PassTask& task_;
  SharedWord& progress_;
  const bool takes_;
  const bool gives_;
  const std::uint32_t bytes_;
  Link before_;
  Link next_;
};

// The first warp's part: a thread for each other one.
__device__ inline void free_strips(const PassTask& task, const RingPlace& place, const PassProgress& progress) {
  const int warp = static_cast<int>(threadIdx.x) % 32;
  const bool watches = place.place > 0 && warp < passing_warps;
  const std::uint32_t lane = passing_lane(watches ? warp : 0);
  std::uint32_t* const number = &words(task.windows[task.rank]).lanes[lane].taken[place.before];
  std::uint32_t* const freed = &words(task.windows[place.before]).lanes[lane].freed[task.rank];
  const std::uint32_t before = watches ? peek(number) : 0;
  // What was taken until the kernel before ended; then, of this one's, a quarter of the ring at a time.
  if (watches) post(freed, before);
  const std::uint32_t worth = task.layout.ring() / 4;
  std::uint32_t told = 0;
  std::uint32_t taken = 0;
  bool ended = !watches;
#pragma unroll 1
  while (!__all_sync(0xffffffff, ended)) {
    if (!ended) {
      const std::uint32_t word = progress.taken[warp].look();
      taken = word / 2;
      ended = (word & 1) != 0;
    }
    if (!__any_sync(0xffffffff, taken - told >= worth)) continue;
    fence_system();  // the strips are blank before their giver may write them again
    if (taken != told) post(freed, before + taken);
    told = taken;
  }
  if (watches) post(number, before + taken);
}

template <class Element>
__global__ void __launch_bounds__((passing_warps + 1) * 32, 1) pass_strips(const __grid_constant__ PassTask task) {
  __shared__ PassProgress progress;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  fetch(task);
  const RingPlace place = ring_place(task.rank, task.ranks, task.root, static_cast<int>(blockIdx.x));
  if (threadIdx.x < passing_warps) progress.taken[threadIdx.x].clear();
  __syncthreads();
  WarpNumbers numbers;
  if (warp == 0) {
    numbers = WarpNumbers(task);
    wait_for_kernel_before();
    numbers.read();
    if (blockIdx.x == 0) announce(task, numbers);
    move_unread_on(task, numbers);
    free_strips(task, place, progress);
    if (blockIdx.x == 0) compare_calls(task, numbers);
  } else {
    StripPasser<Element> passer(task, place, progress, warp - 1);
    wait_for_kernel_before();
    passer.run();
  }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __syncthreads();
  let_next_kernel_start();
  if (warp != 0) return;
  numbers.move_on_here();
  __syncwarp();
  sign_off(task);
}

}  // namespace paceline::cuda
