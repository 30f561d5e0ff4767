#include "topology/fractional_packing.h"

#include <doctest/doctest.h>

namespace paceline {

TEST_CASE("users of links of their own get all of them") {
  CHECK(fractional_packing(std::vector<LinkLoads>{{{0, 1}}, {{2, 1}}}, std::vector<Flow>{5, 9, 7}) ==
        doctest::Approx(12));
}

TEST_CASE("a user that passes a link twice gets half of it") {
  CHECK(fractional_packing(std::vector<LinkLoads>{{{0, 2}}}, std::vector<Flow>{5}) == doctest::Approx(2.5));
}

TEST_CASE("three users of which each two share a link get half of it each") {
  const std::vector<LinkLoads> users{{{0, 1}, {1, 1}}, {{1, 1}, {2, 1}}, {{2, 1}, {0, 1}}};
  CHECK(fractional_packing(users, std::vector<Flow>{1, 1, 1}) == doctest::Approx(1.5));
  CHECK(fractional_packing(users, std::vector<Flow>{1, 4, 4}) == doctest::Approx(4.5));
}

TEST_CASE("no users get nothing") { CHECK(fractional_packing({}, std::vector<Flow>{1}) == 0); }

}  // namespace paceline
