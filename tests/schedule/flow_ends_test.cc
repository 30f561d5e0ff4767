#include "schedule/flow_ends.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

namespace paceline {

TEST_CASE("the first end is that of all flows, however often ends have moved") {
  std::mt19937 random(3);
  FlowEnds ends;
  std::map<int, FlowEnds::End> expected;  // by flow
  for (std::uint64_t order = 0; order < 20'000; ++order) {
    const FlowEnds::End end{static_cast<double>(random() % 100), order, static_cast<int>(random() % 60)};
    ends.set(end);
    expected[end.flow] = end;
    const auto first = std::ranges::min_element(
        expected, [](const auto& a, const auto& b) { return a.second.before(b.second.time, b.second.order); });
    REQUIRE(ends.first().flow == first->first);
    REQUIRE(ends.first().time == first->second.time);
    if (random() % 3 > 0) continue;
    expected.erase(first);
    ends.remove_first();
    REQUIRE(ends.empty() == expected.empty());
  }
}

}  // namespace paceline
