// The floating-point formats below float32: IEEE binary16, bfloat16 and the two 8-bit formats of the Open Compute
// Project ("OCP 8-bit Floating Point Specification", 2023). A value is a code of `width` bits in an integer: sign,
// exponent, mantissa.
//
// Rounding is to nearest even. What is beyond the largest value becomes an infinity, or a NaN with its sign where the
// format has no infinity (e4m3): nothing saturates. What was a NaN before is written as the format's one `nan`.
#pragma once

#include <cstdint>

namespace paceline {

struct FloatFormat {
  int exponent_bits;
  int mantissa_bits;
  std::uint32_t beyond;  // code of what is too large: the first code above the largest value
  std::uint32_t nan;

  constexpr int width() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int smallest_exponent() const { return 1 - bias(); }  // of normal values
  constexpr std::uint32_t sign() const { return 1u << (width() - 1); }
};

inline constexpr FloatFormat binary16{5, 10, 0x7c00, 0x7e00};
inline constexpr FloatFormat bfloat16{8, 7, 0x7f80, 0x7fc0};
inline constexpr FloatFormat float8e4m3{4, 3, 0x7f, 0x7f};
inline constexpr FloatFormat float8e5m2{5, 2, 0x7c, 0x7f};

// One value; the lanes of reduction_lanes-inl.h go to float32 and back.
double decode(const FloatFormat& format, std::uint32_t code);

}  // namespace paceline
