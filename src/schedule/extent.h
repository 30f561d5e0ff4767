// Where a rank's data really lies: in place, input and output are one memory. The proof asks so what a step reads, and
// engines which steps touch the same data.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>

#include "schedule/schedule.h"

namespace paceline {

inline constexpr int scratch_memory = 1;

// An element of one of a rank's memories.
struct Location {
  int memory = 0;          // 0: the output, and in place the input; 1: scratch; 2: an input of its own
  std::size_t offset = 0;  // elements; in place from where the one that begins first does

  bool operator==(const Location&) const = default;
};

inline Location locate(const Problem& problem, int rank, Buffer buffer, std::size_t offset) {
  if (buffer == Buffer::scratch) return {scratch_memory, offset};
  if (!problem.in_place) return {buffer == Buffer::input ? 2 : 0, offset};
  const std::ptrdiff_t difference = input_in_output(problem, rank);
  const std::ptrdiff_t base = buffer == Buffer::input ? difference : -difference;
  return {0, offset + static_cast<std::size_t>(std::max<std::ptrdiff_t>(base, 0))};
}

// Elements [begin, end) of one of these memories.
struct Extent {
  int memory = 0;
  std::ptrdiff_t begin = 0;
  std::ptrdiff_t end = 0;

  auto operator<=>(const Extent&) const = default;
};

inline Extent extent_of(const Problem& problem, int rank, const Region& region) {
  const auto [memory, offset] = locate(problem, rank, region.buffer, region.offset);
  const auto begin = static_cast<std::ptrdiff_t>(offset);
  return {memory, begin, begin + static_cast<std::ptrdiff_t>(region.count)};
}

}  // namespace paceline
