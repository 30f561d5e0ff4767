// Text in a fixed number of bytes, zeros behind it: in what ranks show each other, and in the C API's structs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

namespace paceline {

// Cut where it does not fit.
inline void put(std::span<char> into, std::string_view text) {
  const std::size_t length = std::min(text.size(), into.size() - 1);
  std::ranges::copy(text.substr(0, length), into.begin());
  std::ranges::fill(into.subspan(length), '\0');
}

// Up to its end, which another rank may have forgotten.
inline std::string_view text_in(std::span<const char> from) {
  return {from.data(), static_cast<std::size_t>(std::ranges::find(from, '\0') - from.begin())};
}

}  // namespace paceline
