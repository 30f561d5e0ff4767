// Ways over a network of many switches.
#include "schedule/way_finder.h"

#include <doctest/doctest.h>

#include "api/address_limit.h"
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

}  // namespace paceline
