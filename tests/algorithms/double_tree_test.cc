#include "algorithms/double_tree.h"

#include <doctest/doctest.h>

#include <bit>

namespace paceline {

TEST_CASE("every rank is inner in at most one of the two trees") {
  for (int n = 1; n <= 200; ++n) {
    const Tree first = tree_of_two(0, n);
    const Tree second = tree_of_two(1, n);
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(n); ++rank)
      CHECK((first.children[rank].empty() || second.children[rank].empty()));
  }
}

TEST_CASE("both are binary trees of logarithmic height over all ranks") {
  for (int n = 1; n <= 200; ++n) {
    for (int which = 0; which < 2; ++which) {
      const Tree tree = tree_of_two(which, n);
      int roots = 0;
      int edges = 0;
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(n); ++rank) {
        if (tree.parent[rank] < 0) ++roots;
        CHECK(tree.children[rank].size() <= 2);
        edges += static_cast<int>(tree.children[rank].size());
      }
      CHECK(roots == 1);
      CHECK(edges == n - 1);
      CHECK(tree.height == std::bit_width(static_cast<unsigned>(n)) - 1);
    }
  }
}

}  // namespace paceline
