#include "topology/edge_splitting.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/index.h"

namespace paceline {

EdgeSplitting::EdgeSplitting(CapacityGraph graph, std::vector<Flow> demand, std::vector<bool> kept,
                             std::vector<int> nodes)
    : graph_(std::move(graph)),
      demand_(std::move(demand)),
      kept_(std::move(kept)),
      nodes_(std::move(nodes)),
      total_(std::accumulate(demand_.begin(), demand_.end(), Flow{0})),
      sources_(at(graph_.vertices()) * at(graph_.vertices())) {
  for (int from = 0; from < graph_.vertices(); ++from)
    for (int to = 0; to < graph_.vertices(); ++to)
      if (const Flow weight = graph_.capacity(from, to); weight > 0) sources(from, to).push_back({-1, weight});
}

// The graph with a source, the last vertex, that feeds each vertex with its demand.
FlowNetwork EdgeSplitting::network() const {
  const int n = graph_.vertices();
  FlowNetwork network(n + 1);
  for (int from = 0; from < n; ++from) {
    for (int to = 0; to < n; ++to)
      if (const Flow capacity = graph_.capacity(from, to); capacity > 0) network.add_edge(from, to, capacity);
    if (demand_[at(from)] > 0) network.add_edge(n, from, demand_[at(from)]);
  }
  return network;
}

Status EdgeSplitting::run() {
  const int n = graph_.vertices();
  // What is between machines first, so that each adapter has another machine's as its neighbour.
  for (const bool between : {true, false})
    for (int w = 0; w < n; ++w)
      if (!kept_[at(w)] && (nodes_[at(w)] < 0) == between) remove(w);
  FlowNetwork rest = network();
  for (int v = 0; v < n; ++v) {
    if (kept_[at(v)] && rest.max_flow(n, v, total_) < total_)
      return Status(Code::unsupported, "trees need switches that get as much bandwidth as they give");
  }
  return {};
}

// Which pairs of edges become one first. What has edges to other machines is a gate, as a NIC: a GPU beside it gets it
// for itself, and what else is in the machine is joined before it shares the gates. There and back again last: it gives
// nothing.
int EdgeSplitting::rank_of(int u, int t) const {
  if (u == t) return 4;
  if ((kept_[at(u)] && is_gate(t)) || (is_gate(u) && kept_[at(t)])) return 0;
  if (nodes_[at(u)] != nodes_[at(t)]) return 1;
  return is_gate(u) || is_gate(t) ? 3 : 2;
}

bool EdgeSplitting::is_gate(int v) const {
  for (int other = 0; !kept_[at(v)] && other < graph_.vertices(); ++other)
    if (nodes_[at(other)] != nodes_[at(v)] && graph_.capacity(v, other) + graph_.capacity(other, v) > 0) return true;
  return false;
}

void EdgeSplitting::remove(int w) {
  struct Pair {
    int u;
    int t;
    int rank;
    int offset;
  };
  const int n = graph_.vertices();
  std::vector<Pair> pairs;
  for (int u = 0; u < n; ++u)
    for (int t = 0; t < n; ++t)
      if (graph_.capacity(u, w) > 0 && graph_.capacity(w, t) > 0)
        pairs.push_back({u, t, rank_of(u, t), (t - u + n) % n});
  // The widest first, and with those after u first, so that a switch of GPUs that are alike becomes a ring: where edges
  // are few and wide, messages hold each other up less.
  const auto before = [&](const Pair& a, const Pair& b) {
    const Flow of_a = std::min(graph_.capacity(a.u, w), graph_.capacity(w, a.t));
    const Flow of_b = std::min(graph_.capacity(b.u, w), graph_.capacity(w, b.t));
    return std::tuple(a.rank, -of_a, a.u, a.offset) < std::tuple(b.rank, -of_b, b.u, b.offset);
  };
  while (!pairs.empty()) {
    const auto widest = std::ranges::min_element(pairs, before);
    const auto [u, t, rank, offset] = *widest;
    pairs.erase(widest);
    const Flow weight = splittable(u, w, t);
    if (weight == 0) continue;
    graph_.capacity(u, w) -= weight;
    graph_.capacity(w, t) -= weight;
    std::erase_if(pairs,
                  [&](const Pair& pair) { return graph_.capacity(pair.u, w) == 0 || graph_.capacity(w, pair.t) == 0; });
    if (u == t) continue;
    graph_.capacity(u, t) += weight;
    sources(u, t).push_back({w, weight});
  }
  for (int v = 0; v < n; ++v) graph_.capacity(v, w) = graph_.capacity(w, v) = 0;
}

// A cut that u -> w or w -> t crosses loses by the split, unless u -> t crosses it instead: cuts with u and t on the
// source's side and w on the other, or the reverse.
Flow EdgeSplitting::splittable(int u, int w, int t) const {
  const int source = graph_.vertices();
  Flow weight = std::min(graph_.capacity(u, w), graph_.capacity(w, t));
  FlowNetwork w_beyond = network();
  w_beyond.add_edge(source, u, unlimited);
  w_beyond.add_edge(source, t, unlimited);
  FlowNetwork w_before = network();
  w_before.add_edge(source, w, unlimited);
  for (int v = 0; v < source && weight > 0; ++v) {
    if (!kept_[at(v)]) continue;
    if (v != u && v != t) {
      const int with = w_beyond.add_edge(w, v, unlimited);
      weight = std::min(weight, w_beyond.max_flow(source, v, total_ + weight) - total_);
      w_beyond.set_capacity(with, 0);
    }
    const int with_u = w_before.add_edge(u, v, v == u ? 0 : unlimited);
    const int with_t = w_before.add_edge(t, v, v == t ? 0 : unlimited);
    weight = std::min(weight, w_before.max_flow(source, v, total_ + weight) - total_);
    w_before.set_capacity(with_u, 0);
    w_before.set_capacity(with_t, 0);
  }
  return std::max(weight, Flow{0});
}

namespace {

// Two ways, one after the other, without what leads from a vertex back to it: capacity that is taken and not needed.
std::vector<int> joined(std::vector<int> vertices, const std::vector<int>& rest) {
  for (std::size_t i = 1; i < rest.size(); ++i) {
    const auto before = std::ranges::find(vertices, rest[i]);
    if (before == vertices.end())
      vertices.push_back(rest[i]);
    else
      vertices.erase(before + 1, vertices.end());
  }
  return vertices;
}

}  // namespace

std::vector<Way> EdgeSplitting::take(int from, int to, Flow weight) {
  std::vector<Way> ways;
  auto& pool = sources(from, to);
  while (weight > 0 && !pool.empty()) {
    Source& source = pool.front();
    const Flow now = std::min(weight, source.weight);
    const int via = source.via;
    source.weight -= now;
    weight -= now;
    if (source.weight == 0) pool.erase(pool.begin());
    if (via < 0) {
      ways.push_back({{from, to}, now});
      continue;
    }
    // Both halves, cut at each other's borders.
    auto first = take(from, via, now);
    auto second = take(via, to, now);
    for (std::size_t i = 0, j = 0; i < first.size() && j < second.size();) {
      const Flow both = std::min(first[i].weight, second[j].weight);
      ways.push_back({joined(first[i].vertices, second[j].vertices), both});
      if ((first[i].weight -= both) == 0) ++i;
      if ((second[j].weight -= both) == 0) ++j;
    }
  }
  return ways;
}

}  // namespace paceline
