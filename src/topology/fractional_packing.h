// The most that users of shared links can get together, in parts of any size: the linear program
//
//   largest sum of x(i), where on every link the sum of load(i, link) x(i) is at most its capacity, and x(i) >= 0
//
// It bounds what a search over whole lanes can find. By the simplex method; Bland's rule lets it end.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "topology/max_flow.h"

namespace paceline {

using LinkLoads = std::vector<std::pair<int, Flow>>;  // link, what a user needs of it for each unit; not empty

// Up to rounding; infinite where it would take too long.
double fractional_packing(std::span<const LinkLoads> users, std::span<const Flow> capacity);

}  // namespace paceline
