// Data for tests of the transports.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace paceline {

// Bytes that differ from message to message and are easy to make: a run through the golden ratio's multiples.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  std::uint64_t word = seed;
  for (std::size_t i = 0; i < bytes; i += 8) {
    word += 0x9e3779b97f4a7c15;
    std::memcpy(data.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return data;
}

}  // namespace paceline
