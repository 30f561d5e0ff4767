// Sums come out alike only where all ranks compute alike. A program may have changed how its thread does: libraries
// built with -ffast-math have it take subnormal numbers for zero, and others set another rounding, or exceptions.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace paceline {

// While this lives the thread computes as the system starts it: to the nearest, with subnormal numbers, without
// exceptions.
class DefaultArithmetic {
 public:
#if defined(__x86_64__)
  DefaultArithmetic() : before_(_mm_getcsr()) {
    if (is_changed()) _mm_setcsr(as_started);
  }
  ~DefaultArithmetic() {
    if (is_changed()) _mm_setcsr(before_);
  }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  // Setting it takes as long as many instructions, and programs hardly ever need it. The lowest bits only tell what
  // has come up in earlier computations.
  [[nodiscard]] bool is_changed() const { return (before_ & ~0x3FU) != as_started; }

  static constexpr unsigned as_started = 0x1F80;
  unsigned before_;
#endif
};

}  // namespace paceline
