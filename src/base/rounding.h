// Division that rounds up.
#pragma once

#include <cstdint>

namespace paceline {

constexpr std::uint64_t divided_up(std::uint64_t value, std::uint64_t by) { return (value + by - 1) / by; }
constexpr std::uint64_t rounded_up(std::uint64_t value, std::uint64_t grain) {
  return divided_up(value, grain) * grain;
}

}  // namespace paceline
