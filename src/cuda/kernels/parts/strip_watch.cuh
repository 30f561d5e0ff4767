// Who moves rounds of strips (strips.cuh) tells nobody what it has taken: the fence before would wait for all that it
// has stored to the peers, 3 us. The first warp of its block, which moves no data, watches the others, a thread for
// each.
#pragma once

#include "cuda/kernels/parts/strips.cuh"

namespace paceline::cuda {

// Of a lane's strips in a kernel nothing is told after these until it ends: there is room for as many as are left.
__device__ inline std::uint32_t strips_to_tell(std::uint32_t strips, std::uint32_t ring) {
  return strips > ring / 2 ? strips - ring / 2 : 0;
}

// A lane in which another warp of the block takes what comes from a peer. The first warp's threads call everything
// together.
class WatchedLane {
 public:
  // Of a thread that has nothing to watch.
  WatchedLane() = default;
  // strips: how many come through the lane in this kernel. Touches no memory.
  template <class Task>
  __device__ WatchedLane(const Task& task, int source, std::uint32_t lane, std::uint32_t strips)
      : number_(&words(task.windows[task.rank]).lanes[lane].taken[source]),
        freed_(&words(task.windows[source]).lanes[lane].freed[task.rank]),
        strips_(strips),
        last_(strips_to_tell(strips, task.layout.ring())) {}

  [[nodiscard]] __device__ std::uint32_t strips() const { return strips_; }
  // Tells what was taken until the kernel before ended.
  __device__ void begin() {
    if (strips_ == 0) return;
    before_ = peek(number_);
    post(freed_, before_);
  }
  // Whether there will be something to tell before the end.
  [[nodiscard]] __device__ bool is_open() const { return told_ < last_; }
  // Tells that of the lane's strips `now` are blank again, with one fence for all threads' lanes, once any of them has
  // a quarter of a ring to tell of. Whether it did.
  __device__ bool tell(std::uint32_t now, std::uint32_t ring) {
    if (!__any_sync(0xffffffff, is_open() && now - told_ >= ring / 4)) return false;
    fence_system();  // the strips are blank before their giver may write them again
    if (is_open() && now != told_) post(freed_, before_ + now);
    told_ = now;
    return true;
  }
  // When who takes them has ended.
  __device__ void end() const {
    if (strips_ != 0) post(number_, before_ + strips_);
  }

 private:
  std::uint32_t* number_ = nullptr;
  std::uint32_t* freed_ = nullptr;
  std::uint32_t strips_ = 0;
  std::uint32_t last_ = 0;  // strips_to_tell
  std::uint32_t told_ = 0;
  std::uint32_t before_ = 0;
};

// Tells what is blank of the threads' lanes, until there will be nothing to tell before the end. taken: what each of
// the other warps has counted in.
__device__ inline void watch_until_end(WatchedLane& lane, const SharedWord* taken, std::uint32_t ring) {
#pragma unroll 1
  while (__any_sync(0xffffffff, lane.is_open())) {
    const std::uint32_t now = lane.strips() == 0 ? 0 : taken[threadIdx.x % 32].look();
    if (!lane.tell(now, ring)) __nanosleep(100);
  }
}

}  // namespace paceline::cuda
