// The rows of the table that the tests of all rows are about: all, or the one that PACELINE_TEST_ALGORITHM names
// (make prove algorithm=NAME).
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithms/table.h"
#include "topology/paths.h"

namespace paceline::testing {

inline std::string_view asked_for() {
  const char* name = std::getenv("PACELINE_TEST_ALGORITHM");
  return name == nullptr ? "" : name;
}

inline std::span<const Algorithm> tested() {
  if (asked_for().empty()) return algorithms();
  const Algorithm* one = algorithm_named(asked_for());
  return {one, one == nullptr ? std::size_t{0} : std::size_t{1}};
}

// For rows that go by a topology: switches with three ranks each, joined by slower links to one more.
inline std::shared_ptr<Paths> paths_of(int ranks) {
  static std::map<int, std::shared_ptr<Paths>> made;
  std::shared_ptr<Paths>& paths = made[ranks];
  if (paths != nullptr) return paths;
  Topology tree;
  std::vector<int> gpus(static_cast<std::size_t>(ranks));
  std::iota(gpus.begin(), gpus.end(), 0);
  const int spine = tree.add(VertexKind::nvswitch, "spine");
  int leaf = spine;
  for (const int gpu : gpus) {
    if (gpu % 3 == 0) {
      leaf = tree.add(VertexKind::nvswitch, "leaf" + std::to_string(gpu / 3));
      tree.connect(leaf, spine, LinkKind::nvlink, {2, 0});
    }
    tree.connect(tree.add(VertexKind::gpu, "gpu" + std::to_string(gpu)), leaf, LinkKind::nvlink, {3, 0});
  }
  return paths = std::make_shared<Paths>(std::move(tree), std::move(gpus));
}

}  // namespace paceline::testing
