#include "algorithms/order.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace paceline {

TEST_CASE("neighbours in the order whose ranks are neighbours make one run") {
  using Runs = std::vector<std::pair<int, int>>;
  const auto runs = [](const std::vector<int>& order, int begin, int end) {
    Runs found;
    for_runs(order, begin, end, [&](int first, int length) { found.emplace_back(first, length); });
    return found;
  };
  CHECK(runs({0, 1, 2, 3}, 0, 4) == Runs{{0, 4}});
  CHECK(runs({2, 3, 0, 1}, 0, 4) == Runs{{0, 2}, {2, 2}});
  CHECK(runs({3, 2, 1, 0}, 1, 3) == Runs{{1, 1}, {2, 1}});
  CHECK(runs({0, 1, 2, 3}, 2, 2) == Runs{});
}

}  // namespace paceline
