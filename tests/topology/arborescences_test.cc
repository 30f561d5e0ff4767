#include "topology/arborescences.h"

#include <doctest/doctest.h>

#include <ctime>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "topology/part.h"

namespace paceline {
namespace {

// Every tree spans the GPUs, the trees of each root weigh root_weight, and their ways lead over links that can carry
// all of them together.
void check_fits(const Topology& topology, const TreePacking& packing, const std::vector<int>& roots) {
  const auto vertex = [&](int gpu) { return topology.gpus()[static_cast<std::size_t>(gpu)]; };
  std::map<int, Flow> of_root;
  std::map<std::pair<int, int>, Flow> carried;
  for (const PackedTree& tree : packing.trees) {
    of_root[tree.root] += tree.weight;
    REQUIRE(tree.weight > 0);
    std::vector<bool> reached(topology.gpus().size());
    reached[static_cast<std::size_t>(tree.root)] = true;
    REQUIRE(tree.edges.size() == topology.gpus().size() - 1);
    for (const TreeEdge& edge : tree.edges) {
      REQUIRE(reached[static_cast<std::size_t>(edge.from)]);
      REQUIRE_FALSE(reached[static_cast<std::size_t>(edge.to)]);
      reached[static_cast<std::size_t>(edge.to)] = true;
      Flow sum = 0;
      for (const Way& way : edge.ways) {
        REQUIRE(way.vertices.front() == vertex(packing.inward ? edge.to : edge.from));
        REQUIRE(way.vertices.back() == vertex(packing.inward ? edge.from : edge.to));
        REQUIRE(std::set<int>(way.vertices.begin(), way.vertices.end()).size() == way.vertices.size());  // no loop
        for (std::size_t i = 0; i + 1 < way.vertices.size(); ++i)
          carried[{way.vertices[i], way.vertices[i + 1]}] += way.weight;
        sum += way.weight;
      }
      REQUIRE(sum == tree.weight);
    }
  }
  for (const int root : roots) REQUIRE(of_root[root] == packing.root_weight);
  REQUIRE(of_root.size() == roots.size());
  std::map<std::pair<int, int>, Flow> capacity;
  for (const Link& link : topology.links()) capacity[{link.from, link.to}] += units(link.bandwidth);
  for (const auto& [link, weight] : carried)  // exactly: weight * numerator / denominator <= capacity
    REQUIRE(weight * packing.rate.numerator <= capacity[link] * packing.rate.denominator);
}

std::vector<int> every_gpu(const Topology& topology) {
  std::vector<int> gpus(topology.gpus().size());
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

// What each root gives out, exactly.
void check_reaches(const TreePacking& packing, Rate rate) {
  REQUIRE(packing.rate.numerator * packing.root_weight * rate.denominator == packing.rate.denominator * rate.numerator);
}

// An all-reduce's: where each pair takes the ways of its larger use, neither pass overloads a link.
void check_both(const Topology& topology) {
  const auto both = all_reduce_trees(topology);
  REQUIRE_MESSAGE(both.ok(), both.status().message());
  REQUIRE(both->size() == 2);
  using Ways = std::map<std::pair<int, int>, std::map<std::vector<int>, Flow>>;
  std::vector<Ways> uses;
  for (const TreePacking& packing : *both) {
    check_fits(topology, packing, every_gpu(topology));
    check_reaches(packing, shard_rate(topology));
    auto& ways = uses.emplace_back();
    for (const PackedTree& tree : packing.trees)
      for (const TreeEdge& edge : tree.edges)
        for (const Way& way : edge.ways) ways[{way.vertices.front(), way.vertices.back()}][way.vertices] += way.weight;
  }
  CHECK((*both)[0].inward);
  CHECK_FALSE((*both)[1].inward);
  for (const auto& [pair, ways] : uses[0]) {
    const auto& others = uses[1][pair];
    const auto sum = [](const auto& of) {
      return std::accumulate(of.begin(), of.end(), Flow{0}, [](Flow all, const auto& way) { return all + way.second; });
    };
    const auto& [smaller, larger] = sum(ways) < sum(others) ? std::tie(ways, others) : std::tie(others, ways);
    for (const auto& [vertices, weight] : smaller) REQUIRE(larger.at(vertices) >= weight);
  }
}

void check_all(const Topology& topology, bool every_root) {
  const auto gathering = all_gather_trees(topology);
  REQUIRE_MESSAGE(gathering.ok(), gathering.status().message());
  check_fits(topology, *gathering, every_gpu(topology));
  check_reaches(*gathering, shard_rate(topology));
  const auto scattering = reduce_scatter_trees(topology);
  REQUIRE_MESSAGE(scattering.ok(), scattering.status().message());
  CHECK(scattering->inward);
  check_fits(topology, *scattering, every_gpu(topology));
  check_reaches(*scattering, shard_rate(topology, true));
  check_both(topology);
  const Bounds bounds = throughput_bounds(topology);
  for (const int root : every_root ? every_gpu(topology) : std::vector{bounds.worst_root}) {
    const auto broadcast = broadcast_trees(topology, root);
    REQUIRE_MESSAGE(broadcast.ok(), broadcast.status().message());
    check_fits(topology, *broadcast, {root});
    check_reaches(*broadcast, bounds.broadcast_from[static_cast<std::size_t>(root)]);
  }
}

}  // namespace

TEST_CASE("trees reach the bound on every subset of a DGX-1V, each within a second") {
  const Topology machine = whole("dgx1-v100");
  for (int set = 1; set < 256; ++set) {
    const std::vector<int> gpus = subset(set);
    if (gpus.size() == 1) continue;
    INFO("set ", set);
    const std::clock_t start = std::clock();  // of this process alone
    const Topology topology = part(machine, gpus);
    check_all(topology, gpus.size() < 4 || set == 255);
    CHECK(std::clock() - start < CLOCKS_PER_SEC);
  }
}

TEST_CASE("trees reach the bound through switches, NICs and networks") {
  for (const char* name : {"dgx-a100", "hgx-h200", "hgx-h200-x4", "pcie-4gpu-1socket", "pcie-8gpu-2socket",
                           "cs-storm-k80", "k80-node", "rx2"}) {
    INFO(name);
    check_all(part(whole(name)), false);
  }
}

TEST_CASE("trees reach the bound on random graphs with switches") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 100; ++trial) {
    Topology topology;
    const int gpus = 2 + static_cast<int>(random() % 4);
    const int switches = static_cast<int>(random() % 4);
    for (int i = 0; i < gpus; ++i) topology.add(VertexKind::gpu, "gpu" + std::to_string(i));
    for (int i = 0; i < switches; ++i) topology.add(VertexKind::pcie_switch, "switch" + std::to_string(i));
    const int n = gpus + switches;
    for (int v = 1; v < n; ++v) {
      topology.connect(v, static_cast<int>(random() % static_cast<unsigned>(v)), LinkKind::pcie,
                       {static_cast<double>(1 + random() % 5), 0});
      const int other = static_cast<int>(random() % static_cast<unsigned>(v));
      if (random() % 2 == 0) topology.connect(v, other, LinkKind::pcie, {static_cast<double>(1 + random() % 5), 0});
    }
    INFO("trial ", trial);
    check_all(topology, true);
  }
}

TEST_CASE("one GPU needs no trees, an unknown root is an error") {
  const Topology topology = part(whole("dgx1-v100"), {3});
  CHECK(all_gather_trees(topology)->trees.empty());
  CHECK(broadcast_trees(topology, 0)->trees.empty());
  CHECK(broadcast_trees(topology, 1).status().message() == "there is no GPU 1: this topology has GPUs 0 to 0");
}

TEST_CASE("where links are unequal both ways, inward trees are those of the links backwards") {
  const Topology line = uneven_line();
  const auto both = all_reduce_trees(line);
  REQUIRE(both.ok());
  const auto& [scatter, gather] = std::tie((*both)[0], (*both)[1]);
  check_fits(line, scatter, {0, 1, 2});
  check_reaches(scatter, {units(1), 1});
  check_fits(line, gather, {0, 1, 2});
  check_reaches(gather, {units(1), 2});
}

TEST_CASE("where a switch gives more than it gets, the trees are right or there are none") {
  Topology topology;
  for (const char* name : {"a", "b", "c"}) topology.add(VertexKind::gpu, name);
  const int above = topology.add(VertexKind::pcie_switch, "switch");
  for (int gpu = 0; gpu < 3; ++gpu) {
    topology.link(gpu, above, LinkKind::pcie, {1.0 + gpu, 0});
    topology.link(above, gpu, LinkKind::pcie, {5.0 - gpu, 0});
  }
  const auto packing = all_gather_trees(topology);
  if (packing.ok()) {
    check_fits(topology, *packing, {0, 1, 2});
    check_reaches(*packing, shard_rate(topology));
  } else {
    CHECK(packing.status().code() == Code::unsupported);
  }
}

}  // namespace paceline
