#include "topology/presets.h"

#include <doctest/doctest.h>

#include <cmath>

namespace paceline {
namespace {

double leaving(const Topology& topology, int vertex, LinkKind kind) {
  double sum = 0;
  for (const Link& link : topology.links())
    if (link.from == vertex && link.kind == kind) sum += link.bandwidth;
  return sum;
}

Topology get(std::string_view name, int nodes = 0) {
  auto topology = preset(name, nodes);
  REQUIRE_MESSAGE(topology.ok(), topology.status().message());
  return *topology;
}

}  // namespace

TEST_CASE("every preset is a valid topology") {
  for (const Preset& row : presets()) {
    INFO(std::string(row.name));
    CHECK(validate(get(row.name)).ok());
    CHECK(get(row.name).nodes() == row.nodes);
    CHECK(get(row.name, 3).nodes() == 3);
  }
}

TEST_CASE("presets have the GPUs and NICs of the machines") {
  const auto count = [](std::string_view name, VertexKind kind) { return get(name).of_kind(kind).size(); };
  const struct {
    const char* name;
    std::size_t gpus, nics, cpus;
  } machines[] = {{"dgx1-v100", 8, 4, 2},
                  {"dgx-a100", 8, 8, 2},
                  {"hgx-h200", 8, 8, 2},
                  {"hgx-h200-x4", 4, 4, 1},
                  {"pcie-4gpu-1socket", 4, 1, 1},
                  {"pcie-8gpu-2socket", 8, 1, 2},
                  {"cs-storm-k80", 16, 2, 2},
                  {"k80-node", 2, 1, 1},
                  {"rx1", 64, 16, 16},
                  {"rx2", 16, 16, 16},
                  {"rx3", 32, 16, 16}};
  CHECK(std::size(machines) == presets().size());
  for (const auto& machine : machines) {
    INFO(machine.name);
    CHECK(count(machine.name, VertexKind::gpu) == machine.gpus);
    CHECK(count(machine.name, VertexKind::nic) == machine.nics);
    CHECK(count(machine.name, VertexKind::cpu) == machine.cpus);
  }
}

TEST_CASE("every GPU has the NVLink bandwidth of its kind") {
  for (const auto& [name, gbs] : {std::pair{"dgx1-v100", 150.0},
                                  {"dgx-a100", 300.0},
                                  {"hgx-h200", 450.0},
                                  {"hgx-h200-x4", 450.0},
                                  {"cs-storm-k80", 0.0}}) {
    const Topology topology = get(name);
    for (const int gpu : topology.gpus()) CHECK(leaving(topology, gpu, LinkKind::nvlink) == gbs);
  }
}

TEST_CASE("an unknown preset is an error that lists the known ones") {
  const Status status = preset("dgx2").status();
  CHECK(status.code() == Code::invalid_argument);
  CHECK(status.message().find("there is no preset 'dgx2'; there are dgx1-v100, dgx-a100,") == 0);
}

TEST_CASE("a cluster needs nodes and NICs, and its network positive numbers") {
  Topology lonely;
  lonely.add(VertexKind::gpu, "gpu0");
  CHECK(cluster(lonely, 1, {}).ok());
  CHECK(cluster(lonely, 2, {}).status().message() == "the node has no NIC, so no cluster can be made of it");
  CHECK(cluster(lonely, 0, {}).status().message() == "a cluster has 1 to 65536 nodes, not 0");
  CHECK(preset("rx1", 100000).status().message() == "a cluster has 1 to 65536 nodes, not 100000");
  const Topology node = get("k80-node");
  CHECK(cluster(node, 2, {.nic = {1, 0}, .spines = 0}).status().code() == Code::invalid_argument);
  CHECK(cluster(node, 2, {.nic = {1, 0}, .oversubscription = 0}).status().code() == Code::invalid_argument);
  CHECK(cluster(node, 2, {.nic = {1, 0}, .nodes_per_leaf = -1}).status().code() == Code::invalid_argument);
  CHECK(cluster(node, 2, {.nic = {0, 0}}).status().message().find("has a bandwidth of 0 GB/s") != std::string::npos);
}

TEST_CASE("leaves share their spines as the oversubscription says") {
  const auto whole =
      cluster(get("rx1", 1), 8, {.nic = {10, 1}, .nodes_per_leaf = 4, .spines = 2, .oversubscription = 4});
  REQUIRE(whole.ok());
  const auto switches = whole->of_kind(VertexKind::network_switch);
  REQUIRE(switches.size() == 4);
  // 4 nodes * 2 NICs * 10 GB/s come from below, a quarter of it goes up, to two spines.
  for (const Link& link : whole->links()) {
    if (link.kind != LinkKind::network) continue;
    const bool upper =
        whole->vertex(link.from).name.find("spine") == 0 || whole->vertex(link.to).name.find("spine") == 0;
    CHECK(link.bandwidth == 10);
    CHECK(
        (upper || whole->vertex(link.from).kind == VertexKind::nic || whole->vertex(link.to).kind == VertexKind::nic));
  }
  CHECK(leaving(*whole, switches[0], LinkKind::network) == 8 * 10 + 20);
  CHECK(leaving(*whole, switches[2], LinkKind::network) == 2 * 10);
}

}  // namespace paceline
