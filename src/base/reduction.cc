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
#include <cmath>
#include <cstring>
#include <limits>

#include "base/float_formats.h"

namespace paceline {
namespace {

HWY_EXPORT(find_fold);
HWY_EXPORT(multiply_row);
HWY_EXPORT(divide_row);
HWY_EXPORT(target_name);

template <class T>
void store(T value, void* element) {
  std::memcpy(element, &value, sizeof value);
}
template <class T>
T load(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

// To nearest even, into the type's range; 0 for a NaN.
template <class T>
T to_integer(double value) {
  if (std::isnan(value)) return 0;
  const double whole = std::nearbyint(value);
  if (whole <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  // The largest value itself may have no double: compare with the power of two above it.
  if (whole >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return std::numeric_limits<T>::max();
  return static_cast<T>(whole);
}

}  // namespace

FoldFunction fold_function(DataType type, Operation op) { return HWY_DYNAMIC_DISPATCH(find_fold)(type, op); }

Factor factor_of_element(DataType type, const void* element) {
  if (is_floating(type) && size_of(type) < sizeof(float)) return scaling_factor(load_element(type, element));
  Factor factor{};
  std::memcpy(factor.data(), element, size_of(type));
  return factor;
}

Factor scaling_factor(double value) {
  Factor factor{};
  store(static_cast<float>(value), factor.data());
  return factor;
}

void multiply(DataType type, std::byte* target, const std::byte* source, const Factor& factor, std::size_t elements) {
  HWY_DYNAMIC_DISPATCH(multiply_row)(type, target, source, factor, elements);
}

void divide(DataType type, std::byte* target, int divisor, std::size_t elements) {
  HWY_DYNAMIC_DISPATCH(divide_row)(type, target, divisor, elements);
}

const char* instruction_set() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

void store_element(DataType type, double value, void* element) {
  switch (type) {
    case DataType::int8: return store(to_integer<std::int8_t>(value), element);
    case DataType::uint8: return store(to_integer<std::uint8_t>(value), element);
    case DataType::int32: return store(to_integer<std::int32_t>(value), element);
    case DataType::uint32: return store(to_integer<std::uint32_t>(value), element);
    case DataType::int64: return store(to_integer<std::int64_t>(value), element);
    case DataType::uint64: return store(to_integer<std::uint64_t>(value), element);
    case DataType::float16: return store(static_cast<std::uint16_t>(encode(binary16, value)), element);
    case DataType::float32: return store(static_cast<float>(value), element);
    case DataType::float64: return store(value, element);
    case DataType::bfloat16: return store(static_cast<std::uint16_t>(encode(bfloat16, value)), element);
    case DataType::float8e4m3: return store(static_cast<std::uint8_t>(encode(float8e4m3, value)), element);
    case DataType::float8e5m2: return store(static_cast<std::uint8_t>(encode(float8e5m2, value)), element);
  }
}

double load_element(DataType type, const void* element) {
  switch (type) {
    case DataType::int8: return load<std::int8_t>(element);
    case DataType::uint8: return load<std::uint8_t>(element);
    case DataType::int32: return load<std::int32_t>(element);
    case DataType::uint32: return load<std::uint32_t>(element);
    case DataType::int64: return static_cast<double>(load<std::int64_t>(element));
    case DataType::uint64: return static_cast<double>(load<std::uint64_t>(element));
    case DataType::float16: return decode(binary16, load<std::uint16_t>(element));
    case DataType::float32: return load<float>(element);
    case DataType::float64: return load<double>(element);
    case DataType::bfloat16: return decode(bfloat16, load<std::uint16_t>(element));
    case DataType::float8e4m3: return decode(float8e4m3, load<std::uint8_t>(element));
    case DataType::float8e5m2: return decode(float8e5m2, load<std::uint8_t>(element));
  }
  return 0;
}

}  // namespace paceline
#endif  // HWY_ONCE
