// Elements of every data type from numbers and back, one at a time, written from the formats' definitions: what results
// are compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/types.h"

namespace paceline::testing {

struct Format {
  int exponent_bits, mantissa_bits;
  std::uint32_t beyond, nan;
  bool infinite;
  std::vector<double> magnitudes = {};  // of codes without sign; from `beyond` on as if the format went on

  std::uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
};

inline Format with_magnitudes(Format format) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  for (std::uint32_t code = 0; code < format.sign(); ++code) {
    const int exponent = static_cast<int>(code >> format.mantissa_bits);
    const double fraction = std::ldexp(code & ((1u << format.mantissa_bits) - 1), -format.mantissa_bits);
    format.magnitudes.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                              : std::ldexp(1 + fraction, exponent - bias));
  }
  return format;
}

inline const Format& format_of(DataType type) {
  static const Format float16 = with_magnitudes({5, 10, 0x7c00, 0x7e00, true});
  static const Format bfloat16 = with_magnitudes({8, 7, 0x7f80, 0x7fc0, true});
  static const Format e4m3 = with_magnitudes({4, 3, 0x7f, 0x7f, false});
  static const Format e5m2 = with_magnitudes({5, 2, 0x7c, 0x7f, true});
  if (type == DataType::float16) return float16;
  if (type == DataType::bfloat16) return bfloat16;
  return type == DataType::float8e4m3 ? e4m3 : e5m2;
}
inline bool is_small(DataType type) { return is_floating(type) && size_of(type) < 4; }

inline double small_to_double(const Format& format, std::uint32_t code) {
  const std::uint32_t magnitude = code & (format.sign() - 1);
  double value = format.magnitudes[magnitude];
  if (magnitude == format.beyond && format.infinite)
    value = std::numeric_limits<double>::infinity();
  else if (magnitude >= format.beyond)
    value = std::numeric_limits<double>::quiet_NaN();
  return (code & format.sign()) != 0 ? -value : value;
}

// By search among all values.
inline std::uint32_t nearest_small(const Format& format, double value) {
  if (std::isnan(value)) return format.nan;
  const std::uint32_t sign = std::signbit(value) ? format.sign() : 0;
  const double magnitude = std::fabs(value);
  const std::vector<double>& all = format.magnitudes;
  if (magnitude >= all[format.beyond]) return sign | format.beyond;
  const auto high = static_cast<std::uint32_t>(std::ranges::upper_bound(all, magnitude) - all.begin());
  const std::uint32_t low = high - 1;
  const double below = magnitude - all[low];
  const double above = all[high] - magnitude;
  const bool up = below > above || (below == above && low % 2 == 1);
  return sign | (up ? high : low);
}

template <class T>
T number_at(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

// Calls `body` with a value of the type that numbers are computed in.
template <class Body>
void with_number(DataType type, const Body& body) {
  switch (type) {
    case DataType::int8: return body(std::int8_t{});
    case DataType::uint8: return body(std::uint8_t{});
    case DataType::int32: return body(std::int32_t{});
    case DataType::uint32: return body(std::uint32_t{});
    case DataType::int64: return body(std::int64_t{});
    case DataType::uint64: return body(std::uint64_t{});
    case DataType::float64: return body(double{});
    default: return body(float{});
  }
}

// Rounded to nearest even by small floats; of integers a number that the type has.
inline void store_element(DataType type, double value, void* element) {
  if (is_small(type)) {
    const std::uint32_t code = nearest_small(format_of(type), value);
    std::memcpy(element, &code, size_of(type));  // little endian
    return;
  }
  with_number(type, [&]<class T>(T) {
    const auto number = static_cast<T>(value);
    std::memcpy(element, &number, sizeof number);
  });
}
inline double load_element(DataType type, const void* element) {
  if (is_small(type)) {
    std::uint32_t code = 0;
    std::memcpy(&code, element, size_of(type));
    return small_to_double(format_of(type), code);
  }
  double value = 0;
  with_number(type, [&]<class T>(T) { value = static_cast<double>(number_at<T>(element)); });
  return value;
}

}  // namespace paceline::testing
