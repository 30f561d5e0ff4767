// Ways over a network of many switches.
#include "schedule/way_finder.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>
#include <ctime>
#include <set>

#include "api/address_limit.h"
#include "base/index.h"
#include "topology/cluster.h"
#include "topology/presets.h"
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
