// Elements on the GPU: how those of each type are computed with. The same results, bit for bit, as base/reduction.h:
// 16-bit and 8-bit floats in float32, rounded once; integers wrap; a NaN wins min and max; one NaN a type, but
// in e4m3, which has no infinity, for what is too large below zero.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

#include "base/float_formats.h"
#include "base/types.h"

namespace paceline::cuda {

template <class T>
struct Integer {
  using Stored = T;
  using Number = std::conditional_t<(sizeof(T) < 4), std::conditional_t<std::is_signed_v<T>, int, unsigned>, T>;
  using Factor = Stored;
  static __device__ Number load(Stored bits) { return bits; }
  static __device__ Stored store(Number value) { return static_cast<Stored>(value); }
  // Unsigned, so that overflow wraps.
  using Wrapping = std::make_unsigned_t<Number>;
  static __device__ Number sum(Number a, Number b) { return Number(Wrapping(a) + Wrapping(b)); }
  static __device__ Number prod(Number a, Number b) { return Number(Wrapping(a) * Wrapping(b)); }
  static __device__ Number max(Number a, Number b) { return a < b ? b : a; }
  static __device__ Number min(Number a, Number b) { return b < a ? b : a; }
  static __device__ Number scale(Number a, Number factor) { return load(store(prod(a, factor))); }
  static __device__ Number divide(Number a, int divisor) { return load(store(a)) / Number(divisor); }
  static __device__ Number halve(Number a, int exponent) { return divide(a, 1 << exponent); }
};

__device__ inline float larger(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ inline float smaller(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
// No instruction keeps a NaN of two doubles. Of +0 and -0, which compare equal, the sign decides.
__device__ inline double larger(double a, double b) {
  if (isnan(a) || isnan(b)) return a + b;
  if (a == b) return signbit(a) ? b : a;
  return a < b ? b : a;
}
__device__ inline double smaller(double a, double b) {
  if (isnan(a) || isnan(b)) return a + b;
  if (a == b) return signbit(a) ? a : b;
  return b < a ? b : a;
}

template <class AFormat>
struct Floating {
  using Format = AFormat;
  using Stored = typename Format::Stored;
  using Number = typename Format::Number;
  using Factor = Number;
  static __device__ Number load(Stored bits) { return Format::load(bits); }
  static __device__ Stored store(Number value) { return isnan(value) ? Format::nan : Format::store(value); }
  static __device__ Number sum(Number a, Number b) { return a + b; }
  static __device__ Number prod(Number a, Number b) { return a * b; }
  static __device__ Number max(Number a, Number b) { return larger(a, b); }
  static __device__ Number min(Number a, Number b) { return smaller(a, b); }
  // Rounded to the type on the way, as on the host, where they are passes of their own.
  static __device__ Number scale(Number a, Number factor) { return load(store(Format::times(a, factor))); }
  static __device__ Number divide(Number a, int divisor) { return load(store(a)) / Number(divisor); }
  // By 2^exponent: the same bits as divide(), in a tenth of the instructions.
  static __device__ Number halve(Number a, int exponent) {
    if constexpr (sizeof(Number) == 8)
      return Format::times(load(store(a)), __longlong_as_double((1023LL - exponent) << 52));
    else
      return Format::times(load(store(a)), __int_as_float((127 - exponent) << 23));
  }
};

struct Float32 {
  using Stored = std::uint32_t;
  using Number = float;
  static constexpr Stored nan = 0x7fc00000;
  static __device__ float load(Stored bits) { return __uint_as_float(bits); }
  static __device__ Stored store(float value) { return __float_as_uint(value); }
  static __device__ float times(float a, float b) { return __fmul_rn(a, b); }  // never fused with an addition
};
struct Float64 {
  using Stored = std::uint64_t;
  using Number = double;
  static constexpr Stored nan = 0x7ff8000000000000;
  static __device__ double load(Stored bits) { return __longlong_as_double(static_cast<long long>(bits)); }
  static __device__ Stored store(double value) { return static_cast<Stored>(__double_as_longlong(value)); }
  static __device__ double times(double a, double b) { return __dmul_rn(a, b); }
};
struct Float16 {
  using Stored = std::uint16_t;
  using Number = float;
  static constexpr Stored nan = 0x7e00;
  static __device__ float load(Stored bits) { return __half2float(__ushort_as_half(bits)); }
  static __device__ Stored store(float value) { return __half_as_ushort(__float2half_rn(value)); }
  static __device__ float times(float a, float b) { return __fmul_rn(a, b); }
};
struct Bfloat16 {
  using Stored = std::uint16_t;
  using Number = float;
  static constexpr Stored nan = 0x7fc0;
  static __device__ float load(Stored bits) { return __uint_as_float(static_cast<std::uint32_t>(bits) << 16); }
  static __device__ Stored store(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
  static __device__ float times(float a, float b) { return __fmul_rn(a, b); }
};
// CUDA's own functions write what is too large by way of doubles, and read by a loop before compute capability 8.9.
template <FloatFormat format, __nv_fp8_interpretation_t as_cuda_has_it>
struct Float8 {
  using Stored = std::uint8_t;
  using Number = float;
  static constexpr Stored nan = format.nan;
  static constexpr int shorter = 23 - format.mantissa_bits;                            // than a float32's mantissa
  static constexpr std::uint32_t one_less = (126 + format.smallest_exponent()) << 23;  // than its least exponent
  // A float32 whose last place is that of the format's subnormal numbers: to add it is to round to them.
  static constexpr std::uint32_t rounder = (150 + format.smallest_exponent() - format.mantissa_bits) << 23;

  static __device__ float load(Stored bits) {
#if __CUDA_ARCH__ >= 890
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(bits, as_cuda_has_it)));
#else
    const std::uint32_t magnitude = bits & 0x7f, sign = (bits & 0x80) << 24;
    constexpr std::uint32_t infinity = 0x7f800000, no_number = 0x7fc00000;
    constexpr std::uint32_t beyond = format.beyond == format.nan ? no_number : infinity;
    const float scaled = __fmul_rn(__uint_as_float(magnitude << shorter), __uint_as_float((254 - format.bias()) << 23));
    const std::uint32_t special = magnitude == format.beyond ? beyond : no_number;
    return __uint_as_float((magnitude >= format.beyond ? special : __float_as_uint(scaled)) | sign);
#endif
  }
  static __device__ Stored store(float value) {
    const std::uint32_t bits = __float_as_uint(value), magnitude = bits & 0x7fffffff;
    const std::uint32_t half_less = (1 << (shorter - 1)) - 1 + ((magnitude >> shorter) & 1);  // ties go to even
    const std::uint32_t normal = (magnitude - one_less + half_less) >> shorter;
    const float moved = __fadd_rn(__uint_as_float(magnitude), __uint_as_float(rounder));
    const std::uint32_t small = __float_as_uint(moved) - rounder;
    const bool is_small = magnitude < one_less + (1 << 23);
    return (is_small ? small : min(normal, format.beyond)) | (bits >> 24 & 0x80);
  }
  static __device__ float times(float a, float b) { return __fmul_rn(a, b); }

  // What is at least so large, without its sign, rounds to what is too large; at half way to the code that is even.
  static constexpr std::uint32_t least_beyond =
      (format.beyond << shorter) - (1 << (shorter - 1)) + (format.beyond & 1) + one_less;

  static __device__ float2 load_two(std::uint16_t bits) {
    return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(bits, as_cuda_has_it)));
  }
  // Of numbers that are not too large.
  static __device__ std::uint16_t store_two(float2 values) {
    return __nv_cvt_float2_to_fp8x2(values, __NV_SATFINITE, as_cuda_has_it);
  }
};

// Whether elements go two at once: 8-bit floats, where there are instructions for it.
template <class Element>
constexpr bool by_twos = false;
#if __CUDA_ARCH__ >= 890
template <FloatFormat format, __nv_fp8_interpretation_t as_cuda_has_it>
constexpr bool by_twos<Floating<Float8<format, as_cuda_has_it>>> = true;
#endif

// averages_first() of the element's type.
template <class Element>
constexpr bool scales_first = false;
template <>
constexpr bool scales_first<Floating<Float16>> = true;
template <FloatFormat format, __nv_fp8_interpretation_t as_cuda_has_it>
constexpr bool scales_first<Floating<Float8<format, as_cuda_has_it>>> = true;

template <DataType type>
struct ElementOf;
template <>
struct ElementOf<DataType::int8> {
  using type = Integer<std::int8_t>;
};
template <>
struct ElementOf<DataType::uint8> {
  using type = Integer<std::uint8_t>;
};
template <>
struct ElementOf<DataType::int32> {
  using type = Integer<std::int32_t>;
};
template <>
struct ElementOf<DataType::uint32> {
  using type = Integer<std::uint32_t>;
};
template <>
struct ElementOf<DataType::int64> {
  using type = Integer<std::int64_t>;
};
template <>
struct ElementOf<DataType::uint64> {
  using type = Integer<std::uint64_t>;
};
template <>
struct ElementOf<DataType::float16> {
  using type = Floating<Float16>;
};
template <>
struct ElementOf<DataType::float32> {
  using type = Floating<Float32>;
};
template <>
struct ElementOf<DataType::float64> {
  using type = Floating<Float64>;
};
template <>
struct ElementOf<DataType::bfloat16> {
  using type = Floating<Bfloat16>;
};
template <>
struct ElementOf<DataType::float8e4m3> {
  using type = Floating<Float8<float8e4m3, __NV_E4M3>>;
};
template <>
struct ElementOf<DataType::float8e5m2> {
  using type = Floating<Float8<float8e5m2, __NV_E5M2>>;
};

// The elements of one vector of memory while they are computed with.
template <class Element, class Vector>
struct Row {
  using Stored = typename Element::Stored;
  using Number = typename Element::Number;
  static constexpr int count = sizeof(Vector) / sizeof(Stored);
  static constexpr bool in_twos = by_twos<Element> && count % 2 == 0;

  Number values[count];

  static __device__ Row load(const Vector& vector) {
    Row row;
    if constexpr (in_twos) {
      std::uint16_t twos[count / 2];
      memcpy(twos, &vector, sizeof vector);
#pragma unroll
      for (int i = 0; i < count; i += 2) {
        const float2 two = Element::Format::load_two(twos[i / 2]);
        row.values[i] = two.x;
        row.values[i + 1] = two.y;
      }
      return row;
    }
    Stored stored[count];
    memcpy(stored, &vector, sizeof vector);
#pragma unroll
    for (int i = 0; i < count; ++i) row.values[i] = Element::load(stored[i]);
    return row;
  }
  __device__ Vector store() const {
    if constexpr (in_twos)
      if (largest() < __uint_as_float(Element::Format::least_beyond)) return store_by_twos();
    Stored stored[count];
#pragma unroll
    for (int i = 0; i < count; ++i) stored[i] = Element::store(values[i]);
    Vector vector;
    memcpy(&vector, stored, sizeof vector);
    return vector;
  }
  __device__ void scale(Number factor) {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = Element::scale(values[i], factor);
  }
  __device__ void halve(int exponent) {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = Element::halve(values[i], exponent);
  }
  __device__ void divide(int divisor) {
    if ((divisor & (divisor - 1)) == 0) return halve(31 - __clz(divisor));
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = Element::divide(values[i], divisor);
  }
  // One branch, the same for all threads, costs nothing beside the memory. Sums come first: a jump would cost more.
  __device__ void fold(Operation op, const Row& other) {
    if (op == Operation::sum) return combine(other, Element::sum);
    switch (op) {
      case Operation::prod: return combine(other, Element::prod);
      case Operation::max: return combine(other, Element::max);
      default: return combine(other, Element::min);
    }
  }

 private:
  // Without its sign; NaN if one is.
  __device__ float largest() const {
    float found = 0;
#pragma unroll
    for (int i = 0; i < count; ++i) found = larger(found, fabsf(values[i]));
    return found;
  }
  __device__ Vector store_by_twos() const {
    std::uint16_t twos[count / 2];
#pragma unroll
    for (int i = 0; i < count; i += 2) twos[i / 2] = Element::Format::store_two(make_float2(values[i], values[i + 1]));
    Vector vector;
    memcpy(&vector, twos, sizeof vector);
    return vector;
  }
  template <class Function>
  __device__ void combine(const Row& other, Function function) {
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = function(values[i], other.values[i]);
  }
};

}  // namespace paceline::cuda
