#include "topology/max_flow.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace paceline {
namespace {

struct Edge {
  int from, to;
  Flow capacity;
};

}  // namespace

TEST_CASE("the flow through a diamond is that of its smallest cut") {
  FlowNetwork network(4);
  network.add_edge(0, 1, 3);
  network.add_edge(0, 2, 2);
  network.add_edge(1, 3, 2);
  network.add_edge(2, 3, 4);
  const int across = network.add_edge(1, 2, 5);
  CHECK(network.max_flow(0, 3) == 5);
  network.set_capacity(across, 0);
  CHECK(network.max_flow(0, 3) == 4);
  CHECK(network.source_side(0) == std::vector{true, true, false, false});
  CHECK(network.max_flow(3, 0) == 0);
  CHECK(network.max_flow(0, 3, 1) == 1);
}

TEST_CASE("a path may be longer than a stack is deep") {
  constexpr int length = 500'000;
  FlowNetwork network(length + 1);
  for (int v = 0; v < length; ++v) network.add_edge(v, v + 1, 7);
  CHECK(network.max_flow(0, length) == 7);
}

TEST_CASE("the flow equals the smallest of all cuts") {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int n = 2 + static_cast<int>(random() % 6);
    std::vector<Edge> edges;
    FlowNetwork network(n);
    for (int from = 0; from < n; ++from) {
      for (int to = 0; to < n; ++to) {
        if (from == to || random() % 2 == 0) continue;
        edges.push_back({from, to, static_cast<Flow>(random() % 10)});
        network.add_edge(from, to, edges.back().capacity);
      }
    }
    const auto crossing = [&](auto inside) {
      Flow sum = 0;
      for (const Edge& edge : edges)
        if (inside(edge.from) && !inside(edge.to)) sum += edge.capacity;
      return sum;
    };
    Flow smallest = unlimited;
    for (int set = 0; set < 1 << n; ++set)
      if ((set & 1) != 0 && (set & 2) == 0)
        smallest = std::min(smallest, crossing([&](int v) { return (set >> v & 1) != 0; }));
    CHECK(network.max_flow(0, 1) == smallest);
    const auto side = network.source_side(0);
    CHECK(side[0]);
    CHECK_FALSE(side[1]);
    CHECK(crossing([&](int v) { return side[static_cast<std::size_t>(v)]; }) == smallest);
  }
}

}  // namespace paceline
