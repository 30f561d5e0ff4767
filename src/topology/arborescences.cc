#include "topology/arborescences.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "base/index.h"

namespace paceline {
namespace {

// Trees of one root that are equal so far.
struct Bundle {
  int root = 0;
  Flow weight = 0;
  std::vector<int> members;  // in the order in which they joined
  std::vector<bool> holds;   // by vertex
  std::vector<std::pair<int, int>> edges;
};

class Packing {
 public:
  // `graph` has edges between the kept vertices alone.
  Packing(CapacityGraph graph, const std::vector<Flow>& demand, const std::vector<bool>& kept);
  // All bundles, each a tree over all kept vertices. Error (internal): the demands are beyond the graph.
  Result<std::vector<Bundle>> run();

 private:
  struct Choice {
    int from = -1;
    int to = -1;
    Flow weight = 0;
  };
  [[nodiscard]] Choice choose(const Bundle& bundle) const;
  [[nodiscard]] Flow most(const Bundle& bundle, int x, int y) const;

  CapacityGraph graph_;
  std::vector<int> kept_;
  std::vector<Bundle> open_;  // without the one that grows
};

Packing::Packing(CapacityGraph graph, const std::vector<Flow>& demand, const std::vector<bool>& kept)
    : graph_(std::move(graph)) {
  for (int v = 0; v < graph_.vertices(); ++v) {
    if (!kept[at(v)]) continue;
    kept_.push_back(v);
    if (demand[at(v)] == 0) continue;
    Bundle bundle{.root = v, .weight = demand[at(v)], .members = {v}, .holds = {}, .edges = {}};
    bundle.holds.resize(at(graph_.vertices()));
    bundle.holds[at(v)] = true;
    open_.push_back(std::move(bundle));
  }
}

Result<std::vector<Bundle>> Packing::run() {
  std::vector<Bundle> done;
  while (!open_.empty()) {
    Bundle bundle = std::move(open_.back());
    open_.pop_back();
    while (bundle.members.size() < kept_.size()) {
      const Choice choice = choose(bundle);
      if (choice.weight == 0) return Status(Code::internal, "the trees asked for do not fit into the graph");
      if (choice.weight < bundle.weight) {
        open_.push_back(bundle);
        open_.back().weight -= choice.weight;
        bundle.weight = choice.weight;
      }
      bundle.holds[at(choice.to)] = true;
      bundle.members.push_back(choice.to);
      bundle.edges.emplace_back(choice.from, choice.to);
      graph_.capacity(choice.from, choice.to) -= choice.weight;
    }
    done.push_back(std::move(bundle));
  }
  return done;
}

// An edge that the whole bundle can take, near the root, for low trees. Else the one that the most can take of those
// looked at.
Packing::Choice Packing::choose(const Bundle& bundle) const {
  constexpr int looks = 32;  // after the first that can be taken
  Choice best;
  int looked = 0;
  for (const int x : bundle.members) {
    for (const int y : kept_) {
      if (bundle.holds[at(y)] || graph_.capacity(x, y) <= best.weight) continue;
      const Flow weight = most(bundle, x, y);
      if (weight > best.weight) best = {x, y, weight};
      if (best.weight == bundle.weight || (best.weight > 0 && ++looked > looks)) return best;
    }
  }
  return best;
}

// For every set T with y and without x, what comes into T must stay enough for all bundles outside of T. Seen as a flow
// from x to y, where each other bundle is a vertex that x feeds with the bundle's weight and that feeds its members.
Flow Packing::most(const Bundle& bundle, int x, int y) const {
  FlowNetwork network(graph_.vertices());
  for (const int from : kept_)
    for (const int to : kept_)
      if (const Flow capacity = graph_.capacity(from, to); capacity > 0) network.add_edge(from, to, capacity);
  Flow others = 0;
  for (const Bundle& other : open_) {
    if (other.holds[at(y)]) continue;  // x feeds y through it whatever the cut
    const int fed = network.add_vertex();
    network.add_edge(x, fed, other.weight);
    for (const int member : other.members) network.add_edge(fed, member, unlimited);
    others += other.weight;
  }
  const Flow limit = std::min(graph_.capacity(x, y), bundle.weight);
  return std::max(network.max_flow(x, y, others + limit) - others, Flow{0});
}

// Trees for these demands, in units of `rate`.
Result<TreePacking> pack(const Topology& topology, CapacityGraph graph, std::vector<Flow> demand, Rate rate) {
  const std::size_t n = topology.vertices().size();
  // As few units as there can be.
  Flow divisor = 0;
  for (const Flow weight : demand) divisor = std::gcd(divisor, weight);
  for (int from = 0; from < graph.vertices(); ++from)
    for (int to = 0; to < graph.vertices(); ++to) divisor = std::gcd(divisor, graph.capacity(from, to));
  for (Flow& weight : demand) weight /= divisor;
  for (int from = 0; from < graph.vertices(); ++from)
    for (int to = 0; to < graph.vertices(); ++to) graph.capacity(from, to) /= divisor;

  std::vector<bool> kept(n);
  std::vector<int> gpu_of(n, -1);
  for (std::size_t i = 0; i < topology.gpus().size(); ++i) {
    kept[at(topology.gpus()[i])] = true;
    gpu_of[at(topology.gpus()[i])] = static_cast<int>(i);
  }
  EdgeSplitting splitting(std::move(graph), demand, kept);
  PACE_TRY(splitting.run());
  Packing packing(splitting.graph(), demand, kept);
  auto bundles = packing.run();
  PACE_TRY(bundles.status());

  TreePacking result;
  result.root_weight = *std::max_element(demand.begin(), demand.end());
  const Flow shared = std::gcd(rate.numerator, rate.denominator * result.root_weight);
  result.rate = {rate.numerator / shared, rate.denominator * result.root_weight / shared};
  std::stable_sort(bundles->begin(), bundles->end(), [](const Bundle& a, const Bundle& b) { return a.root < b.root; });
  for (const Bundle& bundle : *bundles) {
    PackedTree tree{.root = gpu_of[at(bundle.root)], .weight = bundle.weight, .edges = {}};
    for (const auto& [from, to] : bundle.edges)
      tree.edges.push_back({gpu_of[at(from)], gpu_of[at(to)], splitting.take(from, to, bundle.weight)});
    result.trees.push_back(std::move(tree));
  }
  return result;
}

CapacityGraph graph_of(const Topology& topology, Flow scale) {
  CapacityGraph graph(static_cast<int>(topology.vertices().size()));
  for (const Link& link : topology.links()) graph.capacity(link.from, link.to) += scale * units(link.bandwidth);
  return graph;
}

}  // namespace

Result<TreePacking> broadcast_trees(const Topology& topology, int root) {
  const int n = static_cast<int>(topology.gpus().size());
  if (root < 0 || root >= n)
    return Status(Code::invalid_argument,
                  fmt::format("there is no GPU {}: this topology has GPUs 0 to {}", root, n - 1));
  if (n == 1) return TreePacking{};
  const Rate rate = throughput_bounds(topology).broadcast_from[at(root)];
  std::vector<Flow> demand(topology.vertices().size());
  demand[at(topology.gpus()[at(root)])] = rate.numerator;
  return pack(topology, graph_of(topology, 1), std::move(demand), rate);
}

Result<TreePacking> all_gather_trees(const Topology& topology) {
  if (topology.gpus().size() == 1) return TreePacking{};
  const Rate rate = shard_rate(topology).rate;
  std::vector<Flow> demand(topology.vertices().size());
  for (const int gpu : topology.gpus()) demand[at(gpu)] = rate.numerator;
  return pack(topology, graph_of(topology, rate.denominator), std::move(demand), rate);
}

}  // namespace paceline
