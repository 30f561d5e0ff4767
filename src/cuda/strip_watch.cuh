// Who moves rounds of strips (strips.cuh) tells nobody what it has taken: the fence before would wait for all that it
// has stored to the peers, 3 us. The first warp of its block, which moves no data, watches the others, a thread for
// each.
#pragma once

#include "cuda/strips.cuh"

namespace paceline::cuda {

// A lane in which another warp of the block takes what comes from `source`. The first warp's threads call everything
// together.
template <class Task>
class StripWatch {
 public:
  // Of a thread that has nothing to watch.
  StripWatch() = default;
  // strips: how many come through the lane in this kernel. Touches no memory.
  __device__ StripWatch(const Task& task, int source, std::uint32_t lane, std::uint32_t strips)
      : number_(&words(task.windows[task.rank]).lanes[lane].taken[source]),
        freed_(&words(task.windows[source]).lanes[lane].freed[task.rank]),
        strips_(strips) {}

  // Tells what was taken until the kernel before ended.
  __device__ void begin() {
    if (strips_ == 0) return;
    before_ = peek(number_);
    post(freed_, before_);
  }
  // Tells how many strips are blank again, with one fence for all lanes: a quarter of a ring at a time, and not of the
  // last half, so that there is nothing to do when the others end. taken: what each of them has counted in.
  __device__ void run(const Task& task, const SharedWord* taken) const {
    const std::uint32_t ring = task.layout.ring();
    const std::uint32_t last = strips_ > ring / 2 ? strips_ - ring / 2 : 0;
    std::uint32_t told = 0;
#pragma unroll 1
    while (__any_sync(0xffffffff, told < last)) {
      const std::uint32_t now = told < last ? taken[threadIdx.x % 32].look() : told;
      if (!__any_sync(0xffffffff, now - told >= ring / 4)) {
        __nanosleep(100);
        continue;
      }
      fence_system();  // the strips are blank before their giver may write them again
      if (now != told) post(freed_, before_ + now);
      told = now;
    }
  }
  // When the others have ended.
  __device__ void end() const {
    if (strips_ != 0) post(number_, before_ + strips_);
  }

 private:
  std::uint32_t* number_ = nullptr;
  std::uint32_t* freed_ = nullptr;
  std::uint32_t strips_ = 0;
  std::uint32_t before_ = 0;
};

}  // namespace paceline::cuda
