#include "comm/node_order.h"

#include <doctest/doctest.h>

namespace paceline {

TEST_CASE("ranks that lie node after node need no order") {
  const NodeOrder found = node_order({{0, 1, 2}, {3, 4, 5}});
  CHECK(found.ranks == 3);
  CHECK(found.order.empty());
}

TEST_CASE("ranks placed in turn on the nodes are put in order, whatever the nodes' names") {
  const std::vector<int> expected{0, 3, 1, 4, 2, 5};
  for (const auto& nodes : {std::vector<std::vector<int>>{{0, 3}, {1, 4}, {2, 5}}, {{2, 5}, {0, 3}, {1, 4}}}) {
    const NodeOrder found = node_order(nodes);
    CHECK(found.ranks == 2);
    CHECK(found.order == expected);
  }
}

TEST_CASE("one node, one rank a node, and nodes that are not alike are no levels") {
  for (const auto& nodes :
       {std::vector<std::vector<int>>{{0, 1, 2, 3}}, {{0}, {1}, {2}}, {{0, 1, 2}, {3}}, {{0, 2}, {1, 3, 4}}}) {
    CHECK(node_order(nodes).ranks == 1);
    CHECK(node_order(nodes).order.empty());
  }
}

}  // namespace paceline
