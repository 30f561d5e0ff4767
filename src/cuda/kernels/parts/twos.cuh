// Narrow elements several at once, where that has the bits that they have one by one (fold.cuh).
//
// Two 16-bit floats: a sum, rounded, is what it is in float32 and then rounded, since that has more than twice as many
// bits. So are two 8-bit floats in float16, which reaches as far as the widest of them. tests/python/test_gpu_pairs.py
// tries all pairs of numbers.
#pragma once

#include "cuda/kernels/parts/fold.cuh"

namespace paceline::cuda {

template <class Two>
__device__ Two fold_twos(Operation op, Two a, Two b) {
  if (op == Operation::sum) return __hadd2_rn(a, b);
  return op == Operation::max ? __hmax2_nan(a, b) : __hmin2_nan(a, b);
}

// Whether to multiply by it is to shrink: a power of two, with which nothing gets too large, and which is not so small
// that an 8-bit float would be rounded in float16. Another factor may have more bits than the type.
__device__ inline bool only_shrinks(float factor) {
  return factor >= 0x1p-8F && factor <= 1 && (__float_as_uint(factor) & 0x7fffff) == 0;
}

// Of vectors of words the first becomes the result. False: it must be done one by one. A NaN that is shrunk is any NaN.
template <class Element>
struct Twos {
  static constexpr bool folds = false;
  static constexpr bool shrinks = false;
};
template <class Two, std::uint32_t nan>
struct Twos16 {
  static constexpr bool folds = true;
  static constexpr bool shrinks = std::is_same_v<Two, __half2>;

  template <int words>
  static __device__ bool fold(Operation op, bool halved, std::uint32_t (&first)[words],
                              const std::uint32_t (&second)[words]) {
    if (op == Operation::prod) return false;  // bfloat16's may be too small for float32
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const Two result = fold_twos(op, two(first[i]), two(second[i]));
      first[i] = word(halved ? __hmul2_rn(result, both(0.5F, Two())) : result);
    }
    return true;
  }
  template <int words>
  static __device__ bool shrink(std::uint32_t (&vector)[words], float factor) {
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const Two result = __hmul2_rn(two(vector[i]), both(factor, Two()));
      vector[i] = reinterpret_cast<const std::uint32_t&>(result);
    }
    return true;
  }

 private:
  static __device__ Two two(std::uint32_t word) { return reinterpret_cast<Two&>(word); }
  static __device__ std::uint32_t word(Two two) {
    const std::uint32_t no_number = __hneu2_mask(two, two);
    return (reinterpret_cast<std::uint32_t&>(two) & ~no_number) | (nan & no_number);
  }
  static __device__ __nv_bfloat162 both(float value, __nv_bfloat162) { return __float2bfloat162_rn(value); }
  static __device__ __half2 both(float value, __half2) { return __float2half2_rn(value); }
};
template <>
struct Twos<Floating<Bfloat16>> : Twos16<__nv_bfloat162, 0x7fc07fc0> {};
template <>
struct Twos<Floating<Float16>> : Twos16<__half2, 0x7e007e00> {};
#if __CUDA_ARCH__ >= 890
template <FloatFormat format, __nv_fp8_interpretation_t as_cuda_has_it>
struct Twos<Floating<Float8<format, as_cuda_has_it>>> {
  static constexpr bool folds = true;
  static constexpr bool shrinks = true;

  template <int words>
  static __device__ bool fold(Operation op, bool halved, std::uint32_t (&first)[words],
                              const std::uint32_t (&second)[words]) {
    if (op == Operation::prod || halved) return false;
    return combine<false>(first,
                          [&](int i, int half) { return fold_twos(op, load(first[i], half), load(second[i], half)); });
  }
  template <int words>
  static __device__ bool shrink(std::uint32_t (&vector)[words], float factor) {
    constexpr bool has_no_infinity = format.beyond == format.nan;
    const __half2 factors = __float2half2_rn(factor);
    return combine<has_no_infinity>(vector,
                                    [&](int i, int half) { return __hmul2_rn(load(vector[i], half), factors); });
  }

 private:
  static constexpr int shorter = binary16.mantissa_bits - format.mantissa_bits;
  // What is at least so large rounds to what is too large.
  static constexpr std::uint32_t least_beyond = (format.beyond << shorter) - (1 << (shorter - 1)) +
                                                (format.beyond & 1) + ((binary16.bias() - format.bias()) << 10);
  static __device__ __half2 load(std::uint32_t word, int half) {
    return __half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<std::uint16_t>(word >> half * 16), as_cuda_has_it));
  }
  static __device__ std::uint32_t store(__half2 values) {
    return __nv_cvt_halfraw2_to_fp8x2(values, __NV_SATFINITE, as_cuda_has_it);
  }
  // function: of a word and a half of it. fits: no result is too large, or infinite.
  template <bool fits, int words, class Function>
  static __device__ bool combine(std::uint32_t (&result)[words], Function function) {
    __half2 twos[2 * words];
    __half2 largest = __float2half2_rn(0);
#pragma unroll
    for (int i = 0; i < 2 * words; ++i) {
      twos[i] = function(i / 2, i % 2);
      largest = __hmax2_nan(largest, __habs2(twos[i]));
    }
    if (!fits && !__hblt2(largest, __half2half2(__ushort_as_half(least_beyond)))) return false;
#pragma unroll
    for (int i = 0; i < words; ++i) result[i] = store(twos[2 * i]) | store(twos[2 * i + 1]) << 16;
    return true;
  }
};
#endif
// Sums of bytes, four at once.
struct SumsOfBytes {
  static constexpr bool folds = true;
  static constexpr bool shrinks = false;

  template <int words>
  static __device__ bool fold(Operation op, bool halved, std::uint32_t (&first)[words],
                              const std::uint32_t (&second)[words]) {
    if (op != Operation::sum || halved) return false;
#pragma unroll
    for (int i = 0; i < words; ++i) first[i] = __vadd4(first[i], second[i]);
    return true;
  }
};
template <>
struct Twos<Integer<std::int8_t>> : SumsOfBytes {};
template <>
struct Twos<Integer<std::uint8_t>> : SumsOfBytes {};

// Two ranks' vectors folded, the first rank's first; halved: an average.
template <class Element, class Vector>
__device__ Vector fold_of_two(Operation op, bool halved, Vector first, const Vector& second) {
  if constexpr (Twos<Element>::folds) {
    std::uint32_t words[2][sizeof(Vector) / 4];
    memcpy(words[0], &first, sizeof first);
    memcpy(words[1], &second, sizeof second);
    if (Twos<Element>::fold(op, halved, words[0], words[1])) {
      memcpy(&first, words[0], sizeof first);
      return first;
    }
  }
  auto folded = Row<Element, Vector>::load(first);
  folded.fold(op, Row<Element, Vector>::load(second));
  if (halved) folded.halve(1);  // no call, for which the registers would have to be saved
  return folded.store();
}

}  // namespace paceline::cuda
