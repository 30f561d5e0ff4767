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

// The same buffer and offset on every rank.
std::vector<Place> on_every_rank(const Schedule& schedule, Buffer buffer, std::size_t offset = 0);

}  // namespace paceline
