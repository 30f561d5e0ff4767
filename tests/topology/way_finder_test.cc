// Ways over a network of many switches.
#include "topology/way_finder.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <random>
#include <set>

#include "api/address_limit.h"
#include "base/index.h"
#include "topology/cluster.h"
#include "topology/presets.h"
#include "topology/route.h"
#include "transport/child.h"

namespace paceline {

TEST_CASE("a way over leaves and spines is found without all ways between switches") {
  Child child([] {
    const Topology machine = *cluster(*preset("rx2", 1), 4096, {.nic = {12.5, 0}, .nodes_per_leaf = 1, .spines = 2});
    if (!testing::limit_addresses(std::size_t{64} << 20)) return false;
    WayFinder finder(machine);
    const auto& ways = finder.between(17, 4000);
    if (ways.size() != 1 || finder.between(0, 0).size() != 0) return false;
    int switches = 0;
    for (const int link : ways[0].links)
      switches += static_cast<int>(machine.vertex(machine.link(link).to).kind == VertexKind::network_switch);
    return switches == 3;
  });
  CHECK(child.ended_well());
}

TEST_CASE("GPUs that are as near to the same NICs take one each, however GPUs are numbered") {
  for (const auto& switch_of : {std::array{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 0}}) {
    Topology node;
    std::array<int, 2> switches{};
    for (int s = 0; s < 2; ++s) {
      switches[at(s)] = node.add(VertexKind::pcie_switch, fmt::format("switch{}", s));
      for (int nic = 0; nic < 2; ++nic)
        node.connect(node.add(VertexKind::nic, fmt::format("nic{}", 2 * s + nic)), switches[at(s)], LinkKind::pcie,
                     {50, 0});
    }
    for (int gpu = 0; gpu < 4; ++gpu)
      node.connect(node.add(VertexKind::gpu, fmt::format("gpu{}", gpu)), switches[at(switch_of[at(gpu)])],
                   LinkKind::pcie, {50, 0});
    const Topology machine = *cluster(node, 2, {.nic = {50, 0}});
    WayFinder finder(machine);
    std::set<int> nics;
    for (int gpu = 0; gpu < 4; ++gpu)
      for (const int link : finder.between(gpu, 4 + gpu).at(0).links)
        if (const int to = machine.link(link).to; machine.vertex(to).kind == VertexKind::nic) nics.insert(to);
    CHECK(nics.size() == 8);
  }
}

TEST_CASE("on random machines a way is as short and as wide as the topology's searches have it") {
  std::mt19937 random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int compared = 0;
  for (int round = 0; round < 200; ++round) {
    Topology machine;
    const int vertices = 4 + below(16);
    for (int v = 0; v < vertices; ++v)
      machine.add(v < 3 || below(3) == 0 ? VertexKind::gpu : VertexKind::pcie_switch, fmt::format("v{}", v));
    for (int cable = 0; cable < 2 * vertices; ++cable)
      if (const int from = below(vertices), to = below(vertices); from != to)
        machine.link(from, to, below(2) == 0 ? LinkKind::pcie : LinkKind::nvlink, {1.0 + below(4), 0});
    WayFinder finder(machine);
    const ShortestRoutes routes(machine);
    const auto gpus = static_cast<int>(machine.gpus().size());
    for (int from = 0; from < gpus; ++from) {
      for (int to = 0; to < gpus; ++to) {
        const auto& ways = finder.between(from, to);
        const std::vector<int> route = routes.between(machine.gpus()[at(from)], machine.gpus()[at(to)]);
        REQUIRE(ways.empty() == route.empty());
        if (ways.empty()) continue;
        double width = 1e9;
        for (const int link : ways[0].links) width = std::min(width, machine.link(link).bandwidth);
        CHECK(ways[0].links.size() == route.size());
        CHECK(width == routes.width(machine.gpus()[at(from)], machine.gpus()[at(to)]));
        ++compared;
      }
    }
  }
  CHECK(compared > 1000);
}

// CPU time, of which as many ways on sixteen times as many nodes take as much, but for the caches.
TEST_CASE("finding a way takes no longer where a switch has more nodes") {
  const auto seconds = [](int nodes, int repetitions) {
    const Topology machine = *cluster(*preset("rx2", 1), nodes, {.nic = {12.5, 0}});
    std::clock_t taken = 0;
    for (int i = 0; i < repetitions; ++i) {
      WayFinder finder(machine);
      finder.between(0, 1);  // sorts the links
      const std::clock_t began = std::clock();
      for (int gpu = 0; gpu < nodes; ++gpu) finder.between(gpu, (gpu + nodes - 1) % nodes);
      taken += std::clock() - began;
    }
    return static_cast<double>(taken) / CLOCKS_PER_SEC;
  };
  CHECK(seconds(32768, 1) < 6 * seconds(2048, 16) + 0.1);
}

}  // namespace paceline
