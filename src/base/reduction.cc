#include "base/reduction.h"

// SSSE3 has processors of one year only, and they may take the scalar code. With sanitizers each instruction set takes
// minutes to compile: one vector and the scalar code show the same faults.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS HWY_SSSE3
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/reduction.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "base/reduction_kernels-inl.h"

#if HWY_ONCE
#include <cstdint>
#include <cstring>

#include "base/float_formats.h"

namespace paceline {
namespace {

HWY_EXPORT(find_fold);
HWY_EXPORT(multiply_row);
HWY_EXPORT(divide_row);
HWY_EXPORT(target_name);

template <class Code>
Factor factor_of_code(const FloatFormat& format, const void* element) {
  Code code;
  std::memcpy(&code, element, sizeof code);
  return scaling_factor(decode(format, code));
}

}  // namespace

FoldFunction fold_function(DataType type, Operation op) { return HWY_DYNAMIC_DISPATCH(find_fold)(type, op); }

Factor factor_of_element(DataType type, const void* element) {
  switch (type) {
    case DataType::float16: return factor_of_code<std::uint16_t>(binary16, element);
    case DataType::bfloat16: return factor_of_code<std::uint16_t>(bfloat16, element);
    case DataType::float8e4m3: return factor_of_code<std::uint8_t>(float8e4m3, element);
    case DataType::float8e5m2: return factor_of_code<std::uint8_t>(float8e5m2, element);
    default: break;
  }
  Factor factor{};
  std::memcpy(factor.data(), element, size_of(type));
  return factor;
}

Factor scaling_factor(double value) {
  Factor factor{};
  const auto number = static_cast<float>(value);
  std::memcpy(factor.data(), &number, sizeof number);
  return factor;
}

void multiply(DataType type, std::byte* target, const std::byte* source, const Factor& factor, std::size_t elements) {
  HWY_DYNAMIC_DISPATCH(multiply_row)(type, target, source, factor, elements);
}

void divide(DataType type, std::byte* target, int divisor, std::size_t elements) {
  HWY_DYNAMIC_DISPATCH(divide_row)(type, target, divisor, elements);
}

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace paceline
#endif  // HWY_ONCE
