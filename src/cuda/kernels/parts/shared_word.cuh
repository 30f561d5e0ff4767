// A word in shared memory by which threads of a block speak while none of them waits at a barrier.
//
// Every access is one atomic operation, which is what racecheck of NVIDIA's compute-sanitizer understands: between
// plain accesses, volatile and fenced ones too, it wants a barrier.
#pragma once

#include <cstdint>

namespace paceline::cuda {

class SharedWord {
 public:
  // By one thread, with a barrier between this and all other uses.
  __device__ void clear() { word_ = 0; }
  // Never lowers it. Release: what this thread wrote, read, or saw done before comes before it, for whoever looks.
  __device__ void raise_to(std::uint32_t value) {
    asm volatile("red.release.cta.shared::cta.max.u32 [%0], %1;" ::"r"(address()), "r"(value) : "memory");
  }
  // Acquire: what came before the raise that it sees comes before what this thread does next.
  [[nodiscard]] __device__ std::uint32_t look() const {
    std::uint32_t value;
    asm volatile("atom.acquire.cta.shared::cta.or.b32 %0, [%1], 0;" : "=r"(value) : "r"(address()) : "memory");
    return value;
  }

 private:
  [[nodiscard]] __device__ std::uint32_t address() const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(&word_));
  }
  std::uint32_t word_;
};

}  // namespace paceline::cuda
