// The ranks in the order of chains, rings and trees.
#pragma once

#include <span>
#include <vector>

#include "schedule/schedule.h"

namespace paceline {

// The schedule's order of ranks, rotated so that `first` comes first.
std::vector<int> order_from(const Schedule& schedule, int first);

// The places in ascending order of ranks, as Schedule::reduce wants its operands.
std::vector<Place> by_rank(std::vector<Place> places);

// Calls visit(first, length) for each run of neighbours among positions [begin, end) of the order whose ranks are
// neighbours too: their blocks lie side by side in a buffer that has all blocks in the order of ranks, so that they can
// be one message.
template <class Visit>
void for_runs(std::span<const int> order, int begin, int end, Visit visit) {
  const auto rank = [&](int position) { return order[static_cast<std::size_t>(position)]; };
  for (int first = begin, last = begin; first < end; first = last) {
    for (++last; last < end && rank(last) == rank(last - 1) + 1;) ++last;
    visit(first, last - first);
  }
}

// The same buffer and offset on every rank.
std::vector<Place> on_every_rank(const Schedule& schedule, Buffer buffer, std::size_t offset = 0);

}  // namespace paceline
