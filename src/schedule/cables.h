// The bytes that pass the cables of nodes whose ranks share one: for cost formulas that go through all moves.
#pragma once

#include "schedule/cost.h"

namespace paceline {

class Cables {
 public:
  // Of so many ranks in the model's nodes, one after another.
  Cables(const CostModel& model, int ranks) : node_ranks_(model.node_ranks) {
    if (node_ranks_ == 1) return;
    ranks_.resize(static_cast<std::size_t>(ranks));
    nodes_.resize(static_cast<std::size_t>((ranks + node_ranks_ - 1) / node_ranks_));
  }

  void move(int from, int to, double bytes) {
    if (nodes_.empty() || from / node_ranks_ == to / node_ranks_) return;
    for (auto* end : {&ranks_[static_cast<std::size_t>(from)], &nodes_[static_cast<std::size_t>(from / node_ranks_)]})
      end->out += bytes;
    for (auto* end : {&ranks_[static_cast<std::size_t>(to)], &nodes_[static_cast<std::size_t>(to / node_ranks_)]})
      end->in += bytes;
  }

  [[nodiscard]] Crossing busiest() const { return {most(nodes_), most(ranks_)}; }

 private:
  struct End {
    double out = 0;
    double in = 0;
  };
  static double most(const std::vector<End>& ends) {
    double most = 0;
    for (const End& end : ends) most = std::max({most, end.out, end.in});
    return most;
  }

  int node_ranks_;
  std::vector<End> ranks_;
  std::vector<End> nodes_;
};

}  // namespace paceline
