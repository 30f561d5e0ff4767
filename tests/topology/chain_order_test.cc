#include "topology/chain_order.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "api/address_limit.h"
#include "base/index.h"
#include "topology/presets.h"
#include "topology/route.h"
#include "transport/child.h"

namespace paceline {
namespace {

Topology get(std::string_view name) {
  auto topology = preset(name);
  REQUIRE(topology.ok());
  return *topology;
}

std::vector<int> all_gpus(const Topology& topology) {
  std::vector<int> gpus(topology.gpus().size());
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

Chain best(const Topology& topology, const std::vector<int>& gpus) {
  auto chain = least_loaded_chain(topology, gpus);
  REQUIRE_MESSAGE(chain.ok(), chain.status().message());
  return *chain;
}

// Streams on the link that carries most.
int load_of(const Topology& topology, const Chain& chain) {
  const ShortestRoutes routes(topology);
  std::vector<int> stops;
  if (chain.entry >= 0) stops.push_back(chain.entry);
  for (const int gpu : chain.order) stops.push_back(topology.gpus()[at(gpu)]);
  if (chain.exit >= 0) stops.push_back(chain.exit);
  std::vector<int> loads(topology.links().size());
  for (std::size_t i = 0; i + 1 < stops.size(); ++i)
    for (const int link : routes.between(stops[i], stops[i + 1])) ++loads[at(link)];
  return *std::ranges::max_element(loads);
}

}  // namespace

TEST_CASE("a way has the fewest links, and of those the widest") {
  const Topology dgx = get("dgx1-v100");
  const ShortestRoutes routes(dgx);
  const auto gpu = [&](int number) { return dgx.gpus()[static_cast<std::size_t>(number)]; };
  CHECK(routes.between(gpu(0), gpu(3)).size() == 1);
  CHECK(routes.width(gpu(0), gpu(3)) == 50);
  // GPUs do not relay: over two switches and both sockets.
  CHECK(routes.between(gpu(1), gpu(4)).size() == 5);
  CHECK(routes.width(gpu(1), gpu(4)) == 15.75);
  CHECK(routes.between(gpu(2), gpu(2)).empty());
  const Topology hgx = get("hgx-h200");
  CHECK(ShortestRoutes(hgx).width(hgx.gpus()[0], hgx.gpus()[1]) == 5 * 25);
}

TEST_CASE("on a CS-Storm the best order loads each link once, round-robin over the sockets 8 times") {
  const Topology topology = get("cs-storm-k80");
  const Chain chain = best(topology, all_gpus(topology));
  CHECK(chain.max_link_load == 1);
  CHECK(chain.least_possible == 1);
  CHECK(load_of(topology, chain) == 1);
  std::vector<int> sorted = chain.order;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == all_gpus(topology));

  for (const int exit : topology.of_kind(VertexKind::nic)) {
    Chain naive{.entry = topology.of_kind(VertexKind::nic)[0], .exit = exit};
    for (int i = 0; i < 8; ++i) naive.order.insert(naive.order.end(), {i, 8 + i});
    CHECK(load_of(topology, naive) == 8);
  }
}

TEST_CASE("every preset has an order of load 1") {
  for (const Preset& row : presets()) {
    INFO(std::string(row.name));
    const Topology topology = get(row.name);
    const Chain chain = best(topology, all_gpus(topology));
    CHECK(chain.max_link_load == 1);
    CHECK(load_of(topology, chain) == 1);
    CHECK((chain.entry >= 0) == (topology.nodes() == 1));
  }
}

TEST_CASE("of orders with the same load the widest is taken") {
  const Topology topology = get("dgx1-v100");
  CHECK(best(topology, all_gpus(topology)).width == 50);
  CHECK(best(topology, {0, 1}).width == 25);
}

TEST_CASE("the load is the least of all orders, entries and exits") {
  // Random trees with extra links, in which PCIe switches and NICs hang anywhere.
  std::mt19937 random(7);
  int above_one = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Topology topology;
    const int gpus = 2 + static_cast<int>(random() % 4);
    std::vector<int> inner{topology.add(VertexKind::cpu, "cpu")};
    for (int i = 0; i < 3; ++i) {
      const int above = inner[random() % inner.size()];
      inner.push_back(topology.add(VertexKind::pcie_switch, "switch" + std::to_string(i)));
      // One way only on some: then even a tree may need a link twice.
      topology.link(above, inner.back(), LinkKind::pcie, {1, 0});
      topology.link(inner.back(), random() % 2 == 0 ? above : inner[0], LinkKind::pcie, {1, 0});
    }
    for (int i = 0; i < gpus; ++i) {
      const int gpu = topology.add(VertexKind::gpu, "gpu" + std::to_string(i));
      topology.link(gpu, inner[random() % inner.size()], LinkKind::pcie, {1, 0});
      topology.link(inner[random() % inner.size()], gpu, LinkKind::pcie, {1, 0});
    }
    const int nic = topology.add(VertexKind::nic, "nic");
    topology.connect(nic, inner[random() % inner.size()], LinkKind::pcie, {1, 0});
    REQUIRE(validate(topology).ok());

    int least = 1000;
    std::vector<int> order = all_gpus(topology);
    do {
      least = std::min(least, load_of(topology, {.order = order, .entry = nic, .exit = nic}));
    } while (std::next_permutation(order.begin(), order.end()));
    const Chain chain = best(topology, all_gpus(topology));
    CHECK(chain.max_link_load == least);
    CHECK(chain.least_possible == least);
    CHECK(load_of(topology, chain) == least);
    above_one += least > 1;
  }
  CHECK(above_one > 10);
}

TEST_CASE("without steps the order says what is not proved") {
  const Topology topology = get("dgx1-v100");
  const auto chain = least_loaded_chain(topology, std::vector{0, 1, 6, 7}, {}, 8 * 4);
  REQUIRE(chain.ok());
  CHECK(chain->order.size() == 4);
  CHECK(chain->least_possible <= chain->max_link_load);
}

TEST_CASE("GPUs that no chain can pass are an error") {
  Topology star;  // the hub would have to relay
  for (const char* name : {"hub", "a", "b", "c"}) star.add(VertexKind::gpu, name);
  for (int i = 1; i < 4; ++i) star.connect(0, i, LinkKind::nvlink, {1, 0});
  const Status none = least_loaded_chain(star, std::vector{0, 1, 2, 3}).status();
  CHECK(none.code() == Code::unsupported);
  CHECK(none.message() == "no chain passes all of these GPUs, for GPUs do not relay");
  CHECK(best(star, {1, 0, 2}).order.size() == 3);
  CHECK(least_loaded_chain(star, std::vector{0, 9}).status().code() == Code::invalid_argument);
}

TEST_CASE("where GPUs do not reach NICs to come in and go out through, a chain has no ends") {
  Topology pair;
  pair.add(VertexKind::gpu, "gpu0");
  pair.add(VertexKind::gpu, "gpu1");
  pair.connect(0, 1, LinkKind::nvlink, {50, 0});
  const int nic = pair.add(VertexKind::nic, "nic0");
  SUBCASE("the NIC is at a CPU without GPUs") {
    pair.connect(nic, pair.add(VertexKind::cpu, "cpu0"), LinkKind::pcie, {10, 0});
  }
  SUBCASE("only one of the GPUs has a NIC") { pair.connect(nic, 0, LinkKind::pcie, {10, 0}); }
  const Chain chain = best(pair, {0, 1});
  CHECK(chain.order.size() == 2);
  CHECK(chain.entry == -1);
  CHECK(chain.exit == -1);
  CHECK(chain.max_link_load == 1);
}

TEST_CASE("that one of many GPUs has the only NIC is seen without trying all orders") {
  Topology mesh;
  for (int gpu = 0; gpu < 16; ++gpu) mesh.add(VertexKind::gpu, fmt::format("gpu{}", gpu));
  for (int a = 0; a < 16; ++a)
    for (int b = a + 1; b < 16; ++b) mesh.connect(a, b, LinkKind::nvlink, {50, 0});
  mesh.connect(mesh.add(VertexKind::nic, "nic0"), 0, LinkKind::pcie, {10, 0});
  const Chain chain = best(mesh, all_gpus(mesh));
  CHECK(chain.order.size() == 16);
  CHECK(chain.entry == -1);
}

TEST_CASE("a NIC that no GPU reaches is not used") {
  Topology topology = get("k80-node");
  const int apart = topology.add(VertexKind::cpu, "apart");
  topology.connect(topology.add(VertexKind::nic, "unreached"), apart, LinkKind::pcie, {10, 0});
  const Chain chain = best(topology, all_gpus(topology));
  CHECK(topology.vertex(chain.entry).name == "nic0");
  CHECK(topology.vertex(chain.exit).name == "nic0");
}

TEST_CASE("128 GPUs with 128 NICs take no more memory than a table of their hops") {
  Child child([] {
    Topology topology;
    const int above = topology.add(VertexKind::cpu, "cpu0");
    for (int i = 0; i < 128; ++i) {
      // All unlike each other.
      const int pcie_switch = topology.add(VertexKind::pcie_switch, fmt::format("switch{}", i));
      topology.connect(above, pcie_switch, LinkKind::pcie, {16, 0});
      topology.connect(topology.add(VertexKind::gpu, fmt::format("gpu{}", i)), pcie_switch, LinkKind::pcie, {16, 0});
      topology.connect(topology.add(VertexKind::nic, fmt::format("nic{}", i)), pcie_switch, LinkKind::pcie, {16, 0});
    }
    if (!testing::limit_addresses(std::size_t{128} << 20)) return false;
    return best(topology, all_gpus(topology)).max_link_load == 1;
  });
  CHECK(child.ended_well());
}

TEST_CASE("of many different links the widest are found in seconds") {
  Topology mesh;
  for (int gpu = 0; gpu < 128; ++gpu) mesh.add(VertexKind::gpu, fmt::format("gpu{}", gpu));
  for (int a = 0; a < 128; ++a)
    for (int b = a + 1; b < 128; ++b) mesh.connect(a, b, LinkKind::nvlink, {1.0 + (a * 131 + b * 71) % 4001, 0});
  const auto began = std::chrono::steady_clock::now();
  const Chain chain = best(mesh, all_gpus(mesh));
  CHECK(chain.max_link_load == 1);
  CHECK(chain.width > 1000);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(200));
}

TEST_CASE("that a search was given up is not said to be a proof") {
  const Status none = least_loaded_chain(get("dgx1-v100"), std::vector{0, 1, 2, 3}, 0, 2).status();
  CHECK(none.code() == Code::unsupported);
  CHECK(none.message() == "no chain was found in 2 steps");
}

TEST_CASE("a chain with a root begins there and has no ends outside") {
  const Topology topology = get("dgx1-v100");
  const auto chain = least_loaded_chain(topology, std::vector{0, 1, 2, 3, 4}, 0);
  REQUIRE(chain.ok());
  // GPU 4 has NVLink to GPU 0 alone: whatever begins at 0 takes PCIe to it.
  CHECK(chain->order.front() == 0);
  CHECK(chain->width == 15.75);
  CHECK(chain->max_link_load == 1);
  CHECK(chain->entry == -1);
  CHECK(chain->exit == -1);
  CHECK(least_loaded_chain(topology, std::vector{0, 1, 2, 3, 4}, 4)->width == 50);
}

TEST_CASE("from every root a CS-Storm has an order of load 1") {
  const Topology topology = get("cs-storm-k80");
  for (const int root : all_gpus(topology)) {
    const auto chain = least_loaded_chain(topology, all_gpus(topology), root);
    REQUIRE(chain.ok());
    CHECK(chain->order.front() == root);
    CHECK(load_of(topology, *chain) == 1);
  }
}

TEST_CASE("a root that is none of the GPUs is an error") {
  CHECK(least_loaded_chain(get("dgx1-v100"), std::vector{0, 1}, 2).status().message() ==
        "the root, GPU 2, is none of the chain's");
}

TEST_CASE("the chain of one GPU is the GPU") {
  const Topology topology = get("rx2");
  const Chain chain = best(topology, {3});
  CHECK(chain.order == std::vector{3});
  CHECK(chain.width == 0);
}

}  // namespace paceline
