// The buffers of one collective on all ranks, of bytes whose places tell them apart, and what must come of them.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/calls/case.h"

namespace paceline::cuda {

inline std::byte given_byte(int rank, std::size_t index) {
  return static_cast<std::byte>((rank + 1) * 5 + index * 3 + index / 977);
}

struct Buffers {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::vector<std::byte>> outputs;
};

inline Buffers buffers_of(const Case& c) {
  Buffers buffers;
  for (int rank = 0; rank < c.ranks; ++rank) {
    std::vector<std::byte> input(input_elements(problem_of(c), rank));
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = given_byte(rank, i);
    buffers.inputs.push_back(std::move(input));
    buffers.outputs.emplace_back(output_elements(problem_of(c), rank));
  }
  return buffers;
}

// Of a fold: the sum of all.
inline std::byte expected_at(const Case& c, int rank, std::size_t index) {
  return expected(c, rank, index, given_byte, [&](std::size_t i) {
    unsigned all = 0;
    for (int from = 0; from < c.ranks; ++from) all += static_cast<unsigned>(given_byte(from, i));
    return static_cast<std::byte>(all);
  });
}

// Bytes of a rank's output that are not what they must be.
inline std::size_t wrong_in(const Case& c, const Buffers& buffers, int rank) {
  const auto& output = buffers.outputs[static_cast<std::size_t>(rank)];
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < output.size(); ++i) wrong += output[i] != expected_at(c, rank, i) ? 1 : 0;
  return wrong;
}

}  // namespace paceline::cuda
