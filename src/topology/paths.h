// How messages of some ranks best go through a topology: the chain, the rings and the trees that the searches find for
// them. Each is searched when it is first asked for, and kept. The same on every rank that asks.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "topology/arborescences.h"
#include "topology/graph.h"
#include "topology/rings.h"

namespace paceline {

class Paths {
 public:
  // Rank r is on GPU gpus[r] of a valid topology.
  Paths(Topology topology, std::vector<int> gpus);

  // The ranks in the order of the least loaded chain (chain_order.h) that begins at the root; `inward`: whose messages
  // go to the root.
  // Errors: those of least_loaded_chain(); unsupported for more than 256 ranks.
  const Result<std::vector<int>>& chain(int root, bool inward = false);

  // Rings and trees are of ranks, as GPUs of the part of the topology that they may use (select()).
  // Errors: those of select(); unsupported for more than 32 ranks, for too large a part, where there is no ring, and
  // where the trees' searches fail.
  const Result<Topology>& part();
  const Result<RingPacking>& rings();
  // Of broadcast (from the root), all-gather and reduce-scatter one packing, of an all-reduce two.
  static bool has_trees(Collective which);
  const Result<std::vector<TreePacking>>& trees(Collective which, int root);

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(gpus_.size()); }
  [[nodiscard]] Result<std::vector<int>> search_chain(int root, bool inward) const;
  [[nodiscard]] Result<Topology> select_part() const;
  Result<RingPacking> search_rings();
  Result<std::vector<TreePacking>> search_trees(Collective which, int root);

  Topology topology_;
  std::vector<int> gpus_;
  std::map<std::pair<int, bool>, Result<std::vector<int>>> chains_;
  std::optional<Result<Topology>> part_;
  std::optional<Result<RingPacking>> rings_;
  std::map<std::pair<Collective, int>, Result<std::vector<TreePacking>>> trees_;
};

}  // namespace paceline
