// Topologies for tests: some GPUs of a preset, selected as for a collective on them, and small ones of their own.
#pragma once

#include <doctest/doctest.h>

#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/presets.h"

namespace paceline {

inline Topology whole(std::string_view name) {
  auto found = preset(name);
  REQUIRE(found.ok());
  return *found;
}

// All of them if none are named.
inline Topology part(const Topology& topology, std::vector<int> gpus = {}) {
  if (gpus.empty()) {
    gpus.resize(topology.gpus().size());
    std::iota(gpus.begin(), gpus.end(), 0);
  }
  auto selected = select(topology, gpus);
  REQUIRE_MESSAGE(selected.ok(), selected.status().message());
  return *selected;
}
inline Topology part(std::string_view name, std::vector<int> gpus = {}) { return part(whole(name), std::move(gpus)); }

// The GPUs whose bits are set: 1 to 255 are the subsets of a node's eight.
inline std::vector<int> subset(int set) {
  std::vector<int> gpus;
  for (int i = 0; i < 8; ++i)
    if ((set >> i & 1) != 0) gpus.push_back(i);
  return gpus;
}

// Three GPUs in a row, of which the last two are linked better one way than the other.
inline Topology uneven_line() {
  Topology line;
  for (const char* name : {"a", "b", "c"}) line.add(VertexKind::gpu, name);
  line.connect(0, 1, LinkKind::nvlink, {2, 0});
  line.link(1, 2, LinkKind::nvlink, {1, 0});
  line.link(2, 1, LinkKind::nvlink, {3, 0});
  return line;
}

}  // namespace paceline
