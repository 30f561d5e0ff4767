// Two links of one kind between the same ends carry what both can, to every search alike.
#include <doctest/doctest.h>

#include "topology/arborescences.h"
#include "topology/bounds.h"
#include "topology/cluster_file.h"
#include "topology/nccl_xml.h"
#include "topology/part.h"
#include "topology/rings.h"
#include "tuning/prediction/prediction.h"

namespace paceline {
namespace {

constexpr std::string_view pair_of_cables = R"({"node": {
  "vertices": [{"name": "gpu0", "kind": "gpu"}, {"name": "gpu1", "kind": "gpu"}],
  "links": [{"between": ["gpu0", "gpu1"], "kind": "nvlink", "gbs": 25},
            {"between": ["gpu0", "gpu1"], "kind": "nvlink", "gbs": 25, "latency_us": 1}]}})";

double predicted(const Topology& topology, std::string algorithm) {
  Question question;
  question.collective = Collective::all_gather;
  question.sizes = {1'000'000'000};
  question.gpus = {0, 1};
  question.algorithm = std::move(algorithm);
  const auto answer = predict(topology, question);
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  return answer->rows.at(0).busbw_gbs;
}

}  // namespace

TEST_CASE("a cluster file's parallel links are one: the slowest's latency, all bandwidth") {
  const auto topology = read_cluster(pair_of_cables);
  REQUIRE_MESSAGE(topology.ok(), topology.status().message());
  REQUIRE(topology->links().size() == 2);
  for (const Link& link : topology->links()) {
    CHECK(link.bandwidth == 50);
    CHECK(link.latency == 1);
  }
}

TEST_CASE("bounds, rings, trees and predictions use all parallel links") {
  const auto topology = read_cluster(pair_of_cables);
  REQUIRE(topology.ok());
  CHECK(throughput_bounds(*topology).all_gather == Rate{units(50), 1});
  CHECK(pack_rings(*topology).rate == units(50));
  for (const char* algorithm : {"ring", "rings", "packed_trees"}) {
    INFO(algorithm);
    CHECK(predicted(*topology, algorithm) == doctest::Approx(50).epsilon(0.01));
  }
}

TEST_CASE("NVLinks that NCCL's XML lists one by one are one link") {
  const auto topology = read_nccl_topology(R"(<system version="1"><cpu numaid="0" arch="x86_64">
    <pci busid="0000:06:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="70" rank="0">
      <nvlink target="0000:07:00.0" count="1" tclass="0x030200"/>
      <nvlink target="0000:07:00.0" count="1" tclass="0x030200"/></gpu></pci>
    <pci busid="0000:07:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="70" rank="1">
      <nvlink target="0000:06:00.0" count="2" tclass="0x030200"/></gpu></pci></cpu></system>)");
  REQUIRE_MESSAGE(topology.ok(), topology.status().message());
  const Topology pair = part(*topology);
  REQUIRE(pair.links().size() == 2);
  CHECK(pair.link(0).bandwidth == pair.link(1).bandwidth);
  CHECK(pack_rings(pair).rate == units(pair.link(0).bandwidth));
}

TEST_CASE("links of other kinds or the other way stay apart, and bad ratings are still named") {
  Topology topology;
  for (const char* name : {"a", "b"}) topology.add(VertexKind::gpu, name);
  topology.connect(0, 1, LinkKind::nvlink, {25, 0});
  topology.connect(0, 1, LinkKind::c2c, {25, 0});
  CHECK(topology.links().size() == 4);
  topology.link(0, 1, LinkKind::nvlink, {-5, 0});
  CHECK(validate(topology).message() ==
        "the link from a to b has a bandwidth of -5 GB/s: it must be from 1e-06 to 1000000");
}

TEST_CASE("packed trees use links of all kinds between the same ends") {
  Topology direct;
  for (const char* name : {"a", "b"}) direct.add(VertexKind::gpu, name);
  direct.connect(0, 1, LinkKind::pcie, {25, 0});
  direct.connect(0, 1, LinkKind::c2c, {75, 0});
  Topology through;  // the GPUs' CPUs
  for (const char* name : {"a", "b"}) through.add(VertexKind::gpu, name);
  for (const char* name : {"cpu0", "cpu1"}) through.add(VertexKind::cpu, name);
  for (const int gpu : {0, 1}) {
    through.connect(gpu, gpu + 2, LinkKind::pcie, {63, 0});
    through.connect(gpu, gpu + 2, LinkKind::c2c, {450, 0});
  }
  through.connect(2, 3, LinkKind::socket, {600, 0});
  for (const Topology& topology : {direct, through}) {
    const double bound = throughput_bounds(part(topology)).all_gather.gbs();
    const double found = predicted(topology, "packed_trees");
    CHECK(found <= bound * (1 + 1e-9));
    CHECK(found >= 0.98 * bound);
  }
}

}  // namespace paceline
