#include "topology/rings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/index.h"
#include "topology/cluster.h"
#include "topology/part.h"
#include "topology/way_finder.h"

namespace paceline {

TEST_CASE("the rings of a DGX-1V: on double and on single links, both ways") {
  const RingPacking packing = pack_rings(part("dgx1-v100"));
  CHECK(packing.exact);
  CHECK(packing.rate == units(150));
  std::map<std::vector<int>, Flow> found;
  for (const Ring& ring : packing.rings) found[ring.order] = ring.rate;
  const std::map<std::vector<int>, Flow> expected{{{0, 4, 7, 6, 5, 1, 2, 3}, units(50)},
                                                  {{0, 3, 2, 1, 5, 6, 7, 4}, units(50)},
                                                  {{0, 1, 3, 7, 5, 4, 6, 2}, units(25)},
                                                  {{0, 2, 6, 4, 5, 7, 3, 1}, units(25)}};
  CHECK(found == expected);
}

TEST_CASE("rings on 2 and 4 GPUs of a DGX-1V") {
  CHECK(pack_rings(part("dgx1-v100", {0, 1})).rate == units(25));
  CHECK(pack_rings(part("dgx1-v100", {0, 3})).rate == units(50));
  // Trees reach 100 and 75 there.
  const RingPacking quad = pack_rings(part("dgx1-v100", {0, 1, 2, 3}));
  CHECK(quad.exact);
  CHECK(quad.rate == units(100));
  const RingPacking square = pack_rings(part("dgx1-v100", {0, 1, 4, 5}));
  CHECK(square.exact);
  CHECK(square.rate == units(50));
  CHECK(square.rings.size() == 2);
}

TEST_CASE("four GPUs with a link between each two: six rings of half a link") {
  Topology topology;
  for (const char* name : {"a", "b", "c", "d"}) topology.add(VertexKind::gpu, name);
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b) topology.connect(a, b, LinkKind::nvlink, {100, 0});
  const RingPacking packing = pack_rings(topology);
  CHECK(packing.rate == units(300));
  CHECK(packing.exact);
  CHECK(packing.rings.size() == 6);
  for (const Ring& ring : packing.rings) CHECK(ring.rate == units(50));
}

TEST_CASE("a star of NVLinks has no ring") {
  Topology star;
  for (const char* name : {"hub", "a", "b"}) star.add(VertexKind::gpu, name);
  star.connect(0, 1, LinkKind::nvlink, {25, 0});
  star.connect(0, 2, LinkKind::nvlink, {25, 0});
  const RingPacking packing = pack_rings(star);
  CHECK(packing.rings.empty());
  CHECK(packing.rate == 0);
  CHECK(packing.exact);
}

TEST_CASE("through switches one ring has everything") {
  for (const auto& [name, gbs] : {std::pair{"dgx-a100", 300.0},
                                  {"hgx-h200", 450.0},
                                  {"hgx-h200-x4", 450.0},
                                  {"pcie-4gpu-1socket", 15.75},
                                  {"pcie-8gpu-2socket", 15.75},
                                  {"cs-storm-k80", 15.75}}) {
    INFO(name);
    const RingPacking packing = pack_rings(part(name));
    CHECK(packing.exact);
    CHECK(packing.rate == units(gbs));
    CHECK(packing.rings.size() == 1);
  }
}

TEST_CASE("between nodes rings use all NICs") {
  const Network network{.nic = {12.5, 0}, .nodes_per_leaf = 2, .spines = 2};
  for (const auto& known : {std::pair{*preset("hgx-h200", 2), 400.0},
                            {*preset("hgx-h200", 8), 400.0},
                            {*preset("hgx-h200-x4", 2), 200.0},
                            {*preset("dgx-a100", 2), 200.0},
                            {*preset("dgx-a100", 3), 200.0},
                            {*preset("dgx1-v100", 2), 50.0},
                            {*preset("rx1", 2), 2 * 6.82},
                            {*preset("rx1", 8), 2 * 6.82},
                            {*preset("cs-storm-k80", 4), 2 * 6.82},
                            {*preset("pcie-8gpu-2socket", 2), 12.5},
                            {*preset("rx2", 16), 12.5},
                            {*preset("rx3", 16), 12.5},
                            {*cluster(*preset("hgx-h200", 1), 4, network), 100.0}}) {
    const Topology& topology = known.first;
    const double gbs = known.second;
    INFO(topology.gpus().size(), " GPUs, ", gbs);
    const RingPacking packing = pack_rings(part(topology));
    CHECK(packing.rate == units(gbs));
    CHECK(packing.exact);
    const Topology plain = with_one_nvswitch(part(topology));
    WayFinder finder(plain);
    std::vector<Flow> carried(plain.links().size());
    for (const Ring& ring : packing.rings) {
      REQUIRE(std::set<int>(ring.order.begin(), ring.order.end()).size() == topology.gpus().size());
      for (std::size_t i = 0; i < ring.order.size(); ++i)
        for (const WayPart& way : finder.between(ring.order[i], ring.order[(i + 1) % ring.order.size()]))
          for (const int link : way.links) carried[at(link)] += ring.rate;
    }
    for (std::size_t l = 0; l < carried.size(); ++l) CHECK(carried[l] <= units(plain.links()[l].bandwidth));
  }
}

TEST_CASE("no ring passes two GPUs between which there is no way") {
  Topology node;
  for (const char* name : {"gpu0", "gpu1"}) node.add(VertexKind::gpu, name, 0);
  node.add(VertexKind::nic, "nic0", 0);
  node.connect(0, 1, LinkKind::nvlink, {50, 0});
  node.connect(0, 2, LinkKind::pcie, {8, 0});  // GPU 1 reaches no NIC: GPUs do not relay
  const RingPacking packing = pack_rings(*cluster(node, 2, {.nic = {10, 0}}));
  CHECK(packing.rings.empty());
  CHECK(packing.exact);
}

TEST_CASE("rings use the NICs of those of a cluster's GPUs that are asked for") {
  const Topology two = *preset("hgx-h200", 2);
  CHECK(pack_rings(part(two, {0, 1, 2, 3, 8, 9, 10, 11})).rate == units(200));
  CHECK(pack_rings(part(two, {0, 8, 9, 10})).rate == units(50));
  CHECK(pack_rings(part(*preset("hgx-h200", 2048), {0, 5, 8000, 8005, 16376, 16383})).rate == units(100));
}

TEST_CASE("the rings of every subset of a DGX-1V share no bandwidth and stay below the bound") {
  for (int set = 1; set < 256; ++set) {
    const std::vector<int> gpus = subset(set);
    INFO("set ", set);
    const Topology topology = part("dgx1-v100", gpus);
    const RingPacking packing = pack_rings(topology);
    Flow sum = 0;
    std::map<std::pair<int, int>, Flow> carried;
    for (const Ring& ring : packing.rings) {
      std::vector<int> sorted = ring.order;
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t i = 0; i < gpus.size(); ++i) CHECK(sorted[i] == static_cast<int>(i));
      sum += ring.rate;
      for (std::size_t i = 0; i < gpus.size(); ++i)
        carried[{ring.order[i], ring.order[(i + 1) % gpus.size()]}] += ring.rate;
    }
    CHECK(sum == packing.rate);
    if (gpus.size() == 1) {
      CHECK(packing.rings.empty());
      continue;
    }
    CHECK(units(throughput_bounds(topology).all_gather.gbs()) >= packing.rate);
    if (!topology.of_kind(VertexKind::cpu).empty()) continue;
    CHECK(packing.exact);
    std::map<std::pair<int, int>, Flow> capacity;
    for (const Link& link : topology.links()) capacity[{link.from, link.to}] += units(link.bandwidth);
    for (const auto& [pair, rate] : carried) CHECK(rate <= capacity[pair]);
  }
}

TEST_CASE("rings of one way a hop are not said to be the fastest where there are others") {
  // Two NICs a node, on a socket each; two spines between the leaves.
  const RingPacking nics = pack_rings(part(*preset("rx1", 2), {0, 8}));
  CHECK(nics.rate == units(6.82));
  CHECK_FALSE(nics.exact);
  const Topology spines = *cluster(*preset("rx2", 1), 2, {.nic = {12.5, 0}, .nodes_per_leaf = 1, .spines = 2});
  const RingPacking leaves = pack_rings(part(spines));
  CHECK(leaves.rate == units(6.25));
  CHECK_FALSE(leaves.exact);
  const Topology spine = *cluster(*preset("rx2", 1), 2, {.nic = {12.5, 0}, .nodes_per_leaf = 1});
  CHECK(pack_rings(part(spine)).exact);
}

TEST_CASE("rates that nothing large divides make many lanes and no long search") {
  Topology topology;
  for (const char* name : {"a", "b", "c"}) topology.add(VertexKind::gpu, name);
  topology.connect(0, 1, LinkKind::nvlink, {0.334333, 0});
  topology.connect(0, 2, LinkKind::nvlink, {50, 0});
  topology.connect(1, 2, LinkKind::nvlink, {0.333333, 0});
  const RingPacking packing = pack_rings(topology);
  // A ring each way, as fast as the narrowest link.
  CHECK(packing.rate == units(2 * 0.333333));
  CHECK(packing.exact);
}

TEST_CASE("without steps the rings say that they may not be the best") {
  const RingPacking packing = pack_rings(part("dgx1-v100", {0, 1, 4, 5}), 4);
  CHECK_FALSE(packing.exact);
}

}  // namespace paceline
