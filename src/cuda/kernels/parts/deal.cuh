// What a direct call moves over the link is dealt out among its warps, hand by hand, as they come for more: blocks are
// not equally fast, and all should end at one time. A warp asks for its next hand before it moves this one.
//
// Measured on two H200 beside equal shares: calls of 1 GB 0.5 to 1% faster, all-reduces that load 2%.
#pragma once

#include "cuda/memory/window.h"

namespace paceline::cuda {

class Deal {
 public:
  __device__ explicit Deal(WindowWords& mine) : dealt_(&mine.dealt) {}

  __device__ void begin() {
    ask();
    take();
  }
  [[nodiscard]] __device__ std::uint32_t hand() const { return hand_ - first_; }
  __device__ void ask() {
    if (threadIdx.x % 32 == 0)
      asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(next_) : "l"(dealt_) : "memory");
  }
  // The hand that was asked for.
  __device__ void take() { hand_ = __shfl_sync(~0u, next_, 0); }
  // So many hands are dealt: what comes next begins at 0 again.
  __device__ void skip(std::uint32_t hands) { first_ += hands; }

  // By one thread of each block that had hands, when all of its warps have ended. The last one makes ready for the next
  // call, whose kernel begins when this one has ended.
  static __device__ void end(WindowWords& mine, std::uint32_t blocks) {
    if (atomicAdd(&mine.deals_ended, 1u) + 1 != blocks) return;
    mine.dealt = 0;
    mine.deals_ended = 0;
  }

 private:
  std::uint32_t* dealt_;
  std::uint32_t first_ = 0;  // of what is dealt now
  std::uint32_t hand_ = 0;
  std::uint32_t next_ = 0;
};

}  // namespace paceline::cuda
