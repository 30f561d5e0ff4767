// Reduces whose sums are passed on by strips (strips.cuh), of more than two ranks: as in passes.cuh a rank adds its
// part to what the one before has sent, and sends the sum to the next one; the root has the result. A strip has come
// when it is not blank any more, so each rank takes some 2 us of the way to the root, where a chunk, which is told of
// behind a fence, takes 9. In the windows alone: no rank must see another's buffers, or wait for it at the end.
//
// A warp has a lane, and moves it four strips at a time. The first warp of a block moves no data: it watches the others
// (strip_watch.cuh).
//
// Time: launch + a store over the link for each rank + M/B.
// Source: passes.cuh and strips.cuh. Measured on four H200: 339 GB/s.
#pragma once

#include "cuda/kernels/parts/clerk.cuh"
#include "cuda/kernels/parts/fold.cuh"
#include "cuda/kernels/parts/passes.cuh"
#include "cuda/kernels/parts/strip_watch.cuh"

namespace paceline::cuda {

// The lane of a warp that moves data.
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
  // Touches no memory. taken: its strips from the one before.
  __device__ StripPasser(const PassTask& task, const RingPlace& place, SharedWord& taken, int warp)
      : task_(task),
        taken_(taken),
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
#pragma unroll 1
    for (std::uint32_t round = 0; next_.has(bytes_, round); ++round) {
      // What is stored to another rank holds up loads: so the next round's come before.
      Pairs ahead;
      next_.load(task_.own, bytes_, round + 1, ahead);
      if (takes_) {
        Pairs sums;
        before_.look(bytes_, round, sums);
        before_.settle(bytes_, round, sums);
        before_.count_in(taken_);
        if (!before_.is_well()) next_.give_up();
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
  SharedWord& taken_;
  const bool takes_;
  const bool gives_;
  const std::uint32_t bytes_;
  Link before_;
  Link next_;
};

// What a thread of the first warp watches.
__device__ inline WatchedLane watch(const PassTask& task, const RingPlace& place) {
  const int warp = static_cast<int>(threadIdx.x);
  if (place.place == 0 || warp >= passing_warps) return {};
  const std::uint32_t lane = passing_lane(warp);
  return {task, place.before, lane, strips_of_lane(strips_of(task.own_bytes), lane, gridDim.x * passing_warps)};
}

template <class Element>
__global__ void __launch_bounds__((passing_warps + 1) * 32, 1) pass_strips(const __grid_constant__ PassTask task) {
  __shared__ SharedWord taken[passing_warps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  fetch(task);
  const RingPlace place = ring_place(task.rank, task.ranks, task.root, static_cast<int>(blockIdx.x));
  if (threadIdx.x < passing_warps) taken[threadIdx.x].clear();
  __syncthreads();
  WarpNumbers numbers;
  WatchedLane watched;
  if (warp == 0) {
    numbers = WarpNumbers(task);
    watched = watch(task, place);
    wait_for_kernel_before();
    numbers.read();
    watched.begin();
    if (blockIdx.x == 0) announce(task, numbers);
    move_unread_on(task, numbers);
    watch_until_end(watched, taken, task.layout.ring());
    if (blockIdx.x == 0) compare_calls(task, numbers);
  } else {
    StripPasser<Element> passer(task, place, taken[warp - 1], warp - 1);
    wait_for_kernel_before();
    passer.run();
  }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __syncthreads();
  let_next_kernel_start();
  if (warp != 0) return;
  watched.end();
  numbers.move_on_here();
  __syncwarp();
  sign_off(task);
}

}  // namespace paceline::cuda
