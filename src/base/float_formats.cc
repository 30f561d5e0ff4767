#include "base/float_formats.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace paceline {

std::uint32_t encode(const FloatFormat& format, double value) {
  if (std::isnan(value)) return format.nan;
  const std::uint32_t sign = std::signbit(value) ? format.sign() : 0;
  if (value == 0) return sign;
  if (std::isinf(value)) return sign | format.beyond;
  const int exponent = std::max(std::ilogb(value), format.smallest_exponent());
  if (exponent > format.bias() + 1) return sign | format.beyond;
  // In units of the last place. Normal values bring their hidden bit along, which makes up for the exponent field
  // being one too small; a mantissa that rounds up to the next power of two carries into the field.
  const double units = std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent));
  const auto field = static_cast<std::uint32_t>(exponent - format.smallest_exponent());
  const std::uint32_t code = (field << format.mantissa_bits) + static_cast<std::uint32_t>(units);
  return sign | std::min(code, format.beyond);
}

double decode(const FloatFormat& format, std::uint32_t code) {
  const std::uint32_t magnitude = code & (format.sign() - 1);
  double value = 0;
  if (magnitude >= format.beyond) {
    const bool infinite = magnitude == format.beyond && format.beyond != format.nan;
    value = infinite ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    const std::uint32_t hidden = 1u << format.mantissa_bits;
    const std::uint32_t field = magnitude >> format.mantissa_bits;
    const std::uint32_t units = field == 0 ? magnitude : (magnitude & (hidden - 1)) | hidden;
    const int exponent = format.smallest_exponent() + (field == 0 ? 0 : static_cast<int>(field) - 1);
    value = std::ldexp(static_cast<double>(units), exponent - format.mantissa_bits);
  }
  return (code & format.sign()) != 0 ? -value : value;
}

}  // namespace paceline
