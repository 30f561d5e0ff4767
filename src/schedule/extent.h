// Regions as they lie in a rank's memory: in place, input and output are one. Engines ask with them which steps touch
// the same data.
#pragma once

#include <cstddef>

#include "schedule/schedule.h"

namespace paceline {

// [begin, end) of a space, in elements. Regions of different spaces have no memory in common.
struct Extent {
  int space = 0;  // 0: the output, and in place the input; 1: scratch; 2: an input of its own
  std::ptrdiff_t begin = 0;
  std::ptrdiff_t end = 0;

  bool operator==(const Extent&) const = default;
};

inline Extent extent_of(const Problem& problem, int rank, const Region& region) {
  const auto offset = static_cast<std::ptrdiff_t>(region.offset);
  const auto count = static_cast<std::ptrdiff_t>(region.count);
  if (region.buffer == Buffer::scratch) return {1, offset, offset + count};
  if (region.buffer == Buffer::output) return {0, offset, offset + count};
  if (!problem.in_place) return {2, offset, offset + count};
  const std::ptrdiff_t shifted = offset + input_in_output(problem, rank);
  return {0, shifted, shifted + count};
}

}  // namespace paceline
