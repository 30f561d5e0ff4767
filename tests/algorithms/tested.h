// The rows of the table that the tests of all rows are about: all, or the one that PACELINE_TEST_ALGORITHM names
// (make prove algorithm=NAME).
#pragma once

#include <doctest/doctest.h>
#include <fmt/core.h>

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
#include "topology/part.h"
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

// For rows that go by a topology: switches with three ranks each, joined by slower links to one more. Eight ranks are
// on a DGX-1V, which has several rings, and links that differ.
inline std::shared_ptr<Paths> paths_of(int ranks) {
  static std::map<int, std::shared_ptr<Paths>> made;
  std::shared_ptr<Paths>& paths = made[ranks];
  if (paths != nullptr) return paths;
  std::vector<int> gpus(static_cast<std::size_t>(ranks));
  std::iota(gpus.begin(), gpus.end(), 0);
  if (ranks == 8) return paths = std::make_shared<Paths>(whole("dgx1-v100"), std::move(gpus));
  Topology tree;
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

// What serves() says where there are paths_of(). A row that serves none of a collective's problems which a test asks
// for would pass it unseen: that fails the test.
class Served {
 public:
  Served() = default;
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() {
    for (const auto& [row, times] : times_)
      CHECK_MESSAGE(times > 0, fmt::format("nothing of {} {} has been compared", row.first, name(row.second)));
  }

  bool operator()(const Algorithm& algorithm, const Problem& problem) {
    const bool served = serves(algorithm, problem, paths_of(problem.ranks).get());
    times_[{algorithm.name, problem.collective}] += served;
    return served;
  }

 private:
  std::map<std::pair<std::string_view, Collective>, int> times_;
};

}  // namespace paceline::testing
