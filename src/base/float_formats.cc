#include "base/float_formats.h"

#include <cmath>
#include <limits>

namespace paceline {

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
