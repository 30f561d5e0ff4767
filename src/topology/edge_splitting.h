// A graph of GPUs alone that can do what the topology with its switches can.
//
// Trees are packed in graphs in which every vertex takes part. So switches, CPUs and NICs are removed, one after the
// other: a link u -> w and a link w -> t become a link u -> t, as much of it as leaves every GPU reachable at the rates
// demanded. Where each vertex removed gets as much as it gives, all of its links can be paired in this way. Of many
// pairings, one with few wide edges and a NIC for each GPU lets trees share the fewest links.
//
// Source: Bang-Jensen, Frank and Jackson, "Preserving and increasing local edge-connectivity in mixed graphs" (1995);
// with capacities as in Zhao et al., "ForestColl" (2024), section 5.2.
#pragma once

#include <utility>
#include <vector>

#include "base/status.h"
#include "topology/max_flow.h"

namespace paceline {

// A directed graph without parallel edges.
class CapacityGraph {
 public:
  explicit CapacityGraph(int vertices)
      : vertices_(vertices), capacity_(static_cast<std::size_t>(vertices) * static_cast<std::size_t>(vertices)) {}
  [[nodiscard]] int vertices() const { return vertices_; }
  Flow& capacity(int from, int to) { return capacity_[place(from, to)]; }
  [[nodiscard]] Flow capacity(int from, int to) const { return capacity_[place(from, to)]; }

 private:
  [[nodiscard]] std::size_t place(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(vertices_) + static_cast<std::size_t>(to);
  }
  int vertices_;
  std::vector<Flow> capacity_;
};

// Part of an edge's capacity, and the vertices that it passes, both ends included.
struct Way {
  std::vector<int> vertices;
  Flow weight = 0;
};

class EdgeSplitting {
 public:
  // `demand`: for each vertex what it gives out to all others that have one, 0 for those that are to be removed and
  // those that only take; `kept`: the vertices that stay; `nodes`: the machine of each vertex, -1 of what is between
  // them. Every kept vertex must be reachable at the sum of demands.
  EdgeSplitting(CapacityGraph graph, std::vector<Flow> demand, std::vector<bool> kept, std::vector<int> nodes);

  // Error (unsupported): a vertex cannot be removed, since it gets more or less than it gives.
  Status run();
  // The same vertices; those removed have no edges any more.
  [[nodiscard]] const CapacityGraph& graph() const { return graph_; }
  // After run(): takes `weight` of the capacity of an edge away, and says which ways through the first graph that is.
  std::vector<Way> take(int from, int to, Flow weight);

 private:
  struct Source {
    int via = -1;  // -1: an edge of the first graph
    Flow weight = 0;
  };
  [[nodiscard]] int rank_of(int u, int t) const;
  [[nodiscard]] bool is_gate(int v) const;
  void remove(int w);
  // How much of u -> w -> t can become u -> t.
  [[nodiscard]] Flow splittable(int u, int w, int t) const;
  [[nodiscard]] FlowNetwork network() const;
  std::vector<Source>& sources(int from, int to) {
    return sources_[static_cast<std::size_t>(from) * static_cast<std::size_t>(graph_.vertices()) +
                    static_cast<std::size_t>(to)];
  }

  CapacityGraph graph_;
  std::vector<Flow> demand_;
  std::vector<bool> kept_;
  std::vector<int> nodes_;
  Flow total_ = 0;
  std::vector<std::vector<Source>> sources_;  // of each edge's capacity
};

}  // namespace paceline
