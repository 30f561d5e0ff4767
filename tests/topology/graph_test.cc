#include "topology/graph.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <ctime>
#include <limits>

#include "topology/presets.h"

namespace paceline {
namespace {

// gpu0 - switch - gpu1, and a NIC that leads nowhere.
Topology small() {
  Topology topology;
  const int gpu0 = topology.add(VertexKind::gpu, "gpu0");
  const int gpu1 = topology.add(VertexKind::gpu, "gpu1");
  const int above = topology.add(VertexKind::pcie_switch, "switch0");
  const int nic = topology.add(VertexKind::nic, "nic0");
  for (const int below : {gpu0, gpu1, nic}) topology.connect(below, above, LinkKind::pcie, {10, 1});
  return topology;
}

std::string error_of(const Topology& topology) { return validate(topology).message(); }

}  // namespace

TEST_CASE("a cable is a link each way") {
  const Topology topology = small();
  CHECK(validate(topology).ok());
  CHECK(topology.links().size() == 6);
  CHECK(topology.gpus() == std::vector{0, 1});
  CHECK(topology.leaving()[2] == std::vector{1, 3, 5});
  CHECK(topology.of_kind(VertexKind::nic) == std::vector{3});
  CHECK(topology.nodes() == 1);
}

TEST_CASE("faults of a topology are errors by name") {
  CHECK(error_of(Topology()) == "the topology has no GPU");

  for (const double bandwidth :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Topology topology = small();
    topology.link(0, 1, LinkKind::nvlink, {bandwidth, 0});
    CHECK(error_of(topology).find("the link from gpu0 to gpu1 has a bandwidth of") == 0);
  }
  Topology late = small();
  late.link(0, 1, LinkKind::nvlink, {1, -1});
  CHECK(error_of(late) == "the link from gpu0 to gpu1 has a latency of -1 us: it must be 0 or more");
  Topology nowhere = small();
  nowhere.link(0, 0, LinkKind::nvlink, {1, 0});
  CHECK(error_of(nowhere) == "the link from gpu0 to gpu0 leads nowhere");
  Topology outside = small();
  outside.link(0, 7, LinkKind::nvlink, {1, 0});
  CHECK(error_of(outside) == "a link from vertex 0 to vertex 7, but there are 4");
  Topology twice = small();
  twice.add(VertexKind::cpu, "gpu1");
  CHECK(error_of(twice) == "two vertices are called gpu1");
}

TEST_CASE("GPUs must reach each other, both ways") {
  Topology topology = small();
  const int gpu2 = topology.add(VertexKind::gpu, "gpu2");
  CHECK(error_of(topology) == "there is no way from gpu0 to gpu2");
  topology.link(0, gpu2, LinkKind::nvlink, {1, 0});
  CHECK(error_of(topology) == "there is no way from gpu2 to gpu0");
  topology.link(gpu2, 1, LinkKind::nvlink, {1, 0});
  CHECK(validate(topology).ok());
}

TEST_CASE("a selection keeps the order asked for and drops dead ends") {
  const auto part = select(small(), std::vector{1, 0});
  REQUIRE(part.ok());
  CHECK(part->vertices().size() == 3);
  CHECK(part->vertex(part->gpus()[0]).name == "gpu1");
  CHECK(part->vertex(part->gpus()[1]).name == "gpu0");
  CHECK(part->links().size() == 4);
}

TEST_CASE("a dead end of many switches is dropped in a moment") {
  Topology topology = small();
  int last = 2;
  for (int i = 0; i < 16'000; ++i) {
    const int next = topology.add(VertexKind::pcie_switch, fmt::format("further{}", i));
    topology.connect(last, next, LinkKind::pcie, {10, 1});
    last = next;
  }
  const std::clock_t before = std::clock();
  const auto part = select(topology, std::vector{0, 1});
  REQUIRE(part.ok());
  CHECK(part->vertices().size() == 3);
  CHECK(std::clock() - before < 4 * CLOCKS_PER_SEC);  // of this process alone; pass by pass it takes half a minute
}

TEST_CASE("what cannot be selected is an error by name") {
  const Topology topology = small();
  CHECK(select(topology, {}).status().message() == "no GPU is selected");
  CHECK(select(topology, std::vector{0, 2}).status().message() == "there is no GPU 2: this topology has GPUs 0 to 1");
  CHECK(select(topology, std::vector{-1}).status().message() == "there is no GPU -1: this topology has GPUs 0 to 1");
  CHECK(select(topology, std::vector{1, 1}).status().message() == "GPU 1 is selected twice");

  Topology relay;  // 0 and 2 reach each other over 1 alone
  for (const char* name : {"a", "b", "c"}) relay.add(VertexKind::gpu, name);
  relay.connect(0, 1, LinkKind::nvlink, {1, 0});
  relay.connect(1, 2, LinkKind::nvlink, {1, 0});
  CHECK(select(relay, std::vector{0, 2}).status().message() == "there is no way from a to c");
}

TEST_CASE("PCIe is kept only for GPUs that NVLink does not connect") {
  const auto whole = preset("dgx1-v100");
  REQUIRE(whole.ok());
  const auto connected = select(*whole, std::vector{0, 3});
  REQUIRE(connected.ok());
  CHECK(connected->vertices().size() == 2);
  CHECK(connected->links().size() == 2);
  const auto apart = select(*whole, std::vector{1, 4});
  REQUIRE(apart.ok());
  CHECK(apart->of_kind(VertexKind::cpu).size() == 2);
  CHECK(apart->of_kind(VertexKind::nic).empty());
}

TEST_CASE("the network is kept only for GPUs of a node that nothing else connects") {
  Topology topology;
  for (const char* name : {"a", "b", "c"}) topology.add(VertexKind::gpu, name);
  const int middle = topology.add(VertexKind::network_switch, "middle", -1);
  for (int gpu = 0; gpu < 3; ++gpu) topology.connect(gpu, middle, LinkKind::network, {1, 0});
  topology.connect(0, 1, LinkKind::pcie, {1, 0});
  CHECK(select(topology, std::vector{0, 1})->links().size() == 2);
  const auto far = select(topology, std::vector{0, 2});
  REQUIRE(far.ok());
  CHECK(far->links().size() == 4);
  CHECK(select(topology, std::vector{0, 1, 2})->links().size() == 8);
}

TEST_CASE("a part's links are those of the whole with the same ends") {
  const auto dgx = preset("dgx1-v100");
  const auto part = select(*dgx, std::vector{7, 4, 0});
  const std::vector<int> numbers = links_in_whole(*part, *dgx);
  REQUIRE(numbers.size() == part->links().size());
  for (std::size_t l = 0; l < numbers.size(); ++l) {
    const Link& link = dgx->link(numbers[l]);
    CHECK(dgx->vertex(link.from).name == part->vertex(part->links()[l].from).name);
    CHECK(dgx->vertex(link.to).name == part->vertex(part->links()[l].to).name);
    CHECK(link.kind == part->links()[l].kind);
  }
}

TEST_CASE("the NVSwitches of a node are one where they are alike") {
  const auto whole = preset("hgx-h200", 2);
  REQUIRE(whole.ok());
  const Topology merged = with_one_nvswitch(*whole);
  CHECK(validate(merged).ok());
  CHECK(merged.of_kind(VertexKind::nvswitch).size() == 2);
  CHECK(merged.gpus().size() == 16);
  for (const Link& link : merged.links())
    if (link.kind == LinkKind::nvlink) CHECK(link.bandwidth == 450);

  Topology uneven;
  for (const char* name : {"a", "b"}) uneven.add(VertexKind::gpu, name);
  for (const char* name : {"x", "y"}) uneven.add(VertexKind::nvswitch, name);
  uneven.connect(0, 2, LinkKind::nvlink, {1, 0});
  uneven.connect(1, 2, LinkKind::nvlink, {2, 0});
  uneven.connect(0, 3, LinkKind::nvlink, {2, 0});
  uneven.connect(1, 3, LinkKind::nvlink, {1, 0});
  CHECK(with_one_nvswitch(uneven).vertices().size() == 4);
}

}  // namespace paceline
