// Maximum flow and minimum cut, in integers, so that bounds come out exactly.
//
// Dinic's algorithm: shortest augmenting paths, all of one length at once; O(V^2 E), far less on our graphs.
// Source: Dinic, Soviet Math. Doklady 11 (1970).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace paceline {

using Flow = std::int64_t;
inline constexpr Flow unlimited = std::numeric_limits<Flow>::max() / 4;

class FlowNetwork {
 public:
  explicit FlowNetwork(int vertices) : leaving_(static_cast<std::size_t>(vertices)) {}

  int add_vertex();
  // Returns the new edge. Capacity >= 0.
  int add_edge(int from, int to, Flow capacity);
  void set_capacity(int edge, Flow capacity) { capacity_[static_cast<std::size_t>(edge)] = capacity; }
  [[nodiscard]] Flow capacity(int edge) const { return capacity_[static_cast<std::size_t>(edge)]; }
  [[nodiscard]] int vertices() const { return static_cast<int>(leaving_.size()); }

  // The largest flow, but not more than `enough`: with a limit it ends sooner.
  Flow max_flow(int source, int sink, Flow enough = unlimited);
  // After a max_flow that did not reach its limit: the side of the source in a smallest cut.
  [[nodiscard]] std::vector<bool> source_side(int source) const;

 private:
  struct Arc {
    int to = 0;
    Flow left = 0;
  };
  bool level(int source, int sink);
  Flow push(int source, int sink, Flow most);

  std::vector<Arc> arcs_;  // edge e: arc 2e, and 2e + 1 back
  std::vector<Flow> capacity_;
  std::vector<std::vector<int>> leaving_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
  std::vector<int> path_;  // arcs
};

}  // namespace paceline
