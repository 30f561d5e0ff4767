// What is to be done: one collective at one size, in elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "base/rounding.h"
#include "base/types.h"

namespace paceline {

class Paths;

struct Problem {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int root = 0;           // of rooted collectives
  std::size_t count = 0;  // elements, counted as in the collective's call in paceline.h
  bool in_place = false;  // input and output are the same memory, as paceline.h says for the collective

  bool operator==(const Problem&) const = default;
};

// Whether a call's output may be its input without a copy: of all but all-to-all.
inline bool may_be_in_place(Collective which) {
  return which != Collective::all_to_all && which != Collective::barrier;
}

// Lengths, in elements, of a rank's input and output buffers; 0 where it has none.
std::size_t input_elements(const Problem& problem, int rank);
std::size_t output_elements(const Problem& problem, int rank);

// In place, input element i is output element i + this. Only one of the two differences is not zero.
std::ptrdiff_t input_in_output(const Problem& problem, int rank);

// What an algorithm may be told beside the problem. Every rank must use the same.
struct Parameters {
  std::size_t chunk = SIZE_MAX;  // elements that one step moves at most, >= 1
  int radix = 2;                 // ranks that meet in one step of a k-nomial tree or of recursive doubling, >= 2
  std::vector<int> order = {};   // the ranks in the order of chains and rings; empty: 0..n-1
  int node_ranks = 1;            // that share a node: the first so many in the order, the next, ... Divides n
  std::shared_ptr<Paths> paths = nullptr;  // of the ranks' topology, for algorithms that go by one

  bool operator==(const Parameters&) const = default;
};

// Part `index` of `count` elements cut into `parts` nearly equal parts. Large parts begin at multiples of 64 elements,
// so that vectors stay aligned.
struct Part {
  std::size_t offset = 0;
  std::size_t count = 0;
};
inline Part part_of(std::size_t count, int parts, int index) {
  const auto n = static_cast<std::size_t>(parts);
  const auto i = static_cast<std::size_t>(index);
  const std::size_t grain = count >= n * 1024 ? 64 : 1;
  const std::size_t grains = divided_up(count, grain);
  // n parts of q grains, the first r of them one longer
  const std::size_t q = grains / n;
  const std::size_t r = grains % n;
  const std::size_t begin = std::min(count, (i * q + std::min(i, r)) * grain);
  const std::size_t end = std::min(count, ((i + 1) * q + std::min(i + 1, r)) * grain);
  return {begin, end - begin};
}

}  // namespace paceline
