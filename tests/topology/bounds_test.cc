#include "topology/bounds.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "topology/part.h"

namespace paceline {
namespace {

Rate exactly(double gbs) { return {units(gbs), 1}; }

}  // namespace

TEST_CASE("bounds on a DGX-1V") {
  const struct {
    std::vector<int> gpus;
    double broadcast, all_reduce;
  } rows[] = {{{0, 1}, 25, 25},
              {{0, 3}, 50, 50},
              {{0, 1, 2, 3}, 100, 100},
              {{0, 1, 4, 5}, 50, 75},
              {{0, 1, 2, 3, 4, 5, 6, 7}, 150, 150}};
  for (const auto& row : rows) {
    const Bounds bounds = throughput_bounds(part("dgx1-v100", row.gpus));
    CHECK(bounds.broadcast == exactly(row.broadcast));
    CHECK(bounds.all_reduce == exactly(row.all_reduce));
    CHECK(bounds.all_gather == exactly(row.all_reduce));
    CHECK(bounds.reduce_scatter == exactly(row.all_reduce));
  }
}

TEST_CASE("on an NVSwitch every pair has the full bandwidth") {
  for (const auto& [name, gbs] : {std::pair{"dgx-a100", 300.0}, {"hgx-h200", 450.0}, {"hgx-h200-x4", 450.0}}) {
    const auto gpus = static_cast<int>(part(name).gpus().size());
    for (int a = 0; a < gpus; ++a)
      for (int b = a + 1; b < gpus; ++b) CHECK(throughput_bounds(part(name, {a, b})).broadcast == exactly(gbs));
    const Bounds all = throughput_bounds(part(name));
    CHECK(all.broadcast == exactly(gbs));
    CHECK(all.all_reduce == exactly(gbs));
  }
}

TEST_CASE("in a PCIe tree every collective goes at the rate of a GPU's link") {
  for (const char* name : {"pcie-4gpu-1socket", "pcie-8gpu-2socket", "cs-storm-k80", "k80-node"}) {
    const Bounds bounds = throughput_bounds(part(name));
    CHECK(bounds.broadcast == exactly(15.75));
    CHECK(bounds.all_reduce == exactly(15.75));
  }
}

TEST_CASE("in clusters the NICs bound it") {
  CHECK(throughput_bounds(part("rx3")).broadcast == exactly(12.5));
  CHECK(throughput_bounds(part("rx2")).all_reduce == exactly(12.5));
  // 8 GPUs a node share two FDR NICs; into a node go the shards of the 56 others.
  const Bounds rx1 = throughput_bounds(part("rx1"));
  CHECK(rx1.broadcast == exactly(2 * 6.82));
  CHECK(rx1.all_gather == Rate{units(2 * 6.82) * 63 / 56, 1});
}

TEST_CASE("the rate out of a root can differ from root to root") {
  Topology line;  // 0 = 1 - 2
  for (const char* name : {"a", "b", "c"}) line.add(VertexKind::gpu, name);
  line.connect(0, 1, LinkKind::nvlink, {2, 0});
  line.link(1, 2, LinkKind::nvlink, {1, 0});
  line.link(2, 1, LinkKind::nvlink, {3, 0});
  const Bounds bounds = throughput_bounds(line);
  CHECK(bounds.broadcast_from == std::vector{exactly(1), exactly(1), exactly(2)});
  CHECK(bounds.broadcast == exactly(1));
  CHECK(bounds.worst_root == 0);
  // The shards of a and b share the link from b to c. Backwards, c's shard has 1 to b, b's and c's have 2 to a.
  CHECK(bounds.all_gather == exactly(1));
  CHECK(bounds.reduce_scatter == exactly(2));
  CHECK(bounds.all_reduce == Rate{units(4), 3});
}

TEST_CASE("nothing moves on one GPU") {
  const Bounds bounds = throughput_bounds(part("dgx1-v100", {5}));
  CHECK(bounds.broadcast == Rate{1, 0});
  CHECK(bounds.all_reduce == Rate{1, 0});
}

TEST_CASE("all-gather's bound is the smallest of all cuts, on every subset of a DGX-1V") {
  for (int set = 1; set < 256; ++set) {
    const std::vector<int> gpus = subset(set);
    if (gpus.size() == 1) continue;
    const Topology topology = part("dgx1-v100", gpus);
    const int n = static_cast<int>(topology.vertices().size());
    double smallest = 1e300;
    for (int side = 1; side < (1 << n) - 1; ++side) {
      double crossing = 0;
      int giving = 0;
      for (const int gpu : topology.gpus()) giving += side >> gpu & 1;
      if (giving == 0 || giving == static_cast<int>(gpus.size())) continue;
      for (const Link& link : topology.links())
        if ((side >> link.from & 1) != 0 && (side >> link.to & 1) == 0) crossing += link.bandwidth;
      smallest = std::min(smallest, crossing / giving);
    }
    CHECK(shard_rate(topology).gbs() == doctest::Approx(smallest).epsilon(1e-12));
  }
}

}  // namespace paceline
