// How ranks lie on nodes, as cost models want it (CostModel::node_ranks and order).
#pragma once

#include <vector>

namespace paceline {

struct NodeOrder {
  int ranks = 1;           // of each node; 1 where all are on one node, or not equally many on each
  std::vector<int> order;  // all ranks, node after node; empty: they are so by their numbers, or nodes do not matter
};

// Of each node's ranks, ascending. The same for every order of the nodes.
NodeOrder node_order(std::vector<std::vector<int>> nodes);

}  // namespace paceline
