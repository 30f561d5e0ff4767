#include "schedule/extent_map.h"

#include <doctest/doctest.h>

#include <random>
#include <set>

namespace paceline {
namespace {

std::set<Extent> overlapping(const ExtentMap<int>& map, const Extent& extent) {
  std::set<Extent> found;
  map.visit_overlapping(extent, [&](const Extent& one, int) { found.insert(one); });
  return found;
}

}  // namespace

TEST_CASE("an extent has one value; those that begin at the same place and end elsewhere have others") {
  ExtentMap<int> map;
  map[{0, 10, 20}] = 1;
  map[{0, 10, 15}] = 2;
  CHECK(map[{0, 10, 20}] == 1);
  CHECK(overlapping(map, {0, 14, 15}) == std::set<Extent>{{0, 10, 15}, {0, 10, 20}});
  CHECK(overlapping(map, {0, 15, 16}) == std::set<Extent>{{0, 10, 20}});
}

TEST_CASE("neighbours and other memories do not overlap") {
  ExtentMap<int> map;
  map[{1, 10, 20}] = 1;
  for (const Extent& apart : {Extent{1, 0, 10}, {1, 20, 30}, {0, 10, 20}, {2, 10, 20}}) CHECK(!map.overlaps(apart));
  for (const Extent& shared : {Extent{1, 9, 11}, {1, 19, 20}, {1, 0, 30}}) CHECK(map.overlaps(shared));
}

TEST_CASE("what overlaps is found among extents of any lengths") {
  std::mt19937 random(1);
  const auto any = [&] {
    const auto begin = static_cast<std::ptrdiff_t>(random() % 100);
    return Extent{static_cast<int>(random() % 3), begin, begin + static_cast<std::ptrdiff_t>(1 + random() % 30)};
  };
  ExtentMap<int> map;
  std::set<Extent> all;
  for (int i = 0; i < 200; ++i) {
    const Extent asked = any();
    std::set<Extent> expected;
    for (const Extent& one : all)
      if (one.memory == asked.memory && one.begin < asked.end && asked.begin < one.end) expected.insert(one);
    CHECK(overlapping(map, asked) == expected);
    const Extent next = any();
    map[next] = i;
    all.insert(next);
  }
}

}  // namespace paceline
