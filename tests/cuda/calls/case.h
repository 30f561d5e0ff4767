// One collective on several ranks, as the stand-ins for the kernels run it, and what must come of it.
#pragma once

#include <cstddef>

#include "schedule/problem.h"

namespace paceline::cuda {

struct Case {
  Collective which = Collective::barrier;
  int ranks = 1;
  int root = 0;
  std::size_t count = 0;  // elements
  bool in_place = false;
};

inline Problem problem_of(const Case& c) {
  Problem problem;
  problem.collective = c.which;
  problem.ranks = c.ranks;
  problem.root = c.root;
  problem.count = c.count;
  return problem;
}

// Element i of a rank's output, where value(rank, i) is an element of an input and folded(i) that of all inputs' fold.
template <class Value, class Folded>
auto expected(const Case& c, int rank, std::size_t i, Value value, Folded folded) {
  const std::size_t part = static_cast<std::size_t>(rank) * c.count;
  const auto source = static_cast<int>(i / c.count);
  switch (c.which) {
    case Collective::all_reduce:
    case Collective::reduce: return folded(i);
    case Collective::reduce_scatter: return folded(part + i);
    case Collective::broadcast: return value(c.root, i);
    case Collective::scatter: return value(c.root, part + i);
    case Collective::all_gather:
    case Collective::gather: return value(source, i % c.count);
    default: return value(source, part + i % c.count);
  }
}

}  // namespace paceline::cuda
