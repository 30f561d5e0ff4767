#include "topology/arborescences.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

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

// `backwards`: every link the other way round.
CapacityGraph graph_of(const Topology& topology, Flow scale, bool backwards) {
  CapacityGraph graph(static_cast<int>(topology.vertices().size()));
  for (const Link& link : topology.links()) {
    const auto [from, to] = backwards ? std::pair(link.to, link.from) : std::pair(link.from, link.to);
    graph.capacity(from, to) += scale * units(link.bandwidth);
  }
  return graph;
}

CapacityGraph turned_round(const CapacityGraph& graph) {
  CapacityGraph turned(graph.vertices());
  for (int from = 0; from < graph.vertices(); ++from)
    for (int to = 0; to < graph.vertices(); ++to) turned.capacity(to, from) = graph.capacity(from, to);
  return turned;
}

// Divides everything by what divides all: as few units as there can be.
void shorten(CapacityGraph& graph, std::vector<Flow>& demand) {
  Flow divisor = 0;
  for (const Flow weight : demand) divisor = std::gcd(divisor, weight);
  for (int from = 0; from < graph.vertices(); ++from)
    for (int to = 0; to < graph.vertices(); ++to) divisor = std::gcd(divisor, graph.capacity(from, to));
  for (Flow& weight : demand) weight /= divisor;
  for (int from = 0; from < graph.vertices(); ++from)
    for (int to = 0; to < graph.vertices(); ++to) graph.capacity(from, to) /= divisor;
}

// The topology without what is no GPU, and trees in it. `backwards`: the topology with every link turned round.
class Forest {
 public:
  // Each GPU in `roots` gives out its data at this rate, kB/s.
  Forest(const Topology& topology, const std::vector<int>& roots, Rate rate, bool backwards);
  Status split() { return splitting_->run(); }
  // `turned`: trees in the graph with every edge turned round.
  Result<TreePacking> pack(bool turned);

 private:
  [[nodiscard]] const std::vector<Way>& ways(int from, int to);
  std::vector<Way> take(int from, int to, Flow weight, std::map<std::pair<int, int>, Flow>& taken);

  const Topology& topology_;
  Rate rate_;
  bool backwards_;
  std::vector<Flow> demand_;
  std::vector<bool> kept_;
  std::optional<EdgeSplitting> splitting_;
  std::map<std::pair<int, int>, std::vector<Way>> ways_;  // of an edge's whole capacity
};

Forest::Forest(const Topology& topology, const std::vector<int>& roots, Rate rate, bool backwards)
    : topology_(topology),
      rate_(rate),
      backwards_(backwards),
      demand_(topology.vertices().size()),
      kept_(topology.vertices().size()) {
  for (const int gpu : topology.gpus()) kept_[at(gpu)] = true;
  for (const int root : roots) demand_[at(root)] = rate.numerator;
  CapacityGraph graph = graph_of(topology, rate.denominator, backwards);
  shorten(graph, demand_);
  std::vector<int> nodes;
  for (const Vertex& vertex : topology.vertices()) nodes.push_back(vertex.node);
  splitting_.emplace(std::move(graph), demand_, kept_, std::move(nodes));
}

// All that an edge can carry, always in the same order: whoever takes less of it takes the first of these ways, which
// are the widest. So PCIe is left to those who need it.
const std::vector<Way>& Forest::ways(int from, int to) {
  const auto [found, fresh] = ways_.try_emplace({from, to});
  if (!fresh) return found->second;
  found->second = splitting_->take(from, to, splitting_->graph().capacity(from, to));
  std::ranges::stable_sort(found->second, std::greater(), &Way::weight);
  return found->second;
}

std::vector<Way> Forest::take(int from, int to, Flow weight, std::map<std::pair<int, int>, Flow>& taken) {
  std::vector<Way> parts;
  Flow& before = taken[{from, to}];
  Flow passed = 0;
  for (const Way& way : ways(from, to)) {
    const Flow begin = std::max(before, passed);
    passed += way.weight;
    const Flow end = std::min(before + weight, passed);
    if (begin >= end) continue;
    parts.push_back({way.vertices, end - begin});
    if (backwards_) std::reverse(parts.back().vertices.begin(), parts.back().vertices.end());
  }
  before += weight;
  return parts;
}

Result<TreePacking> Forest::pack(bool turned) {
  const CapacityGraph& graph = splitting_->graph();
  auto bundles = Packing(turned ? turned_round(graph) : graph, demand_, kept_).run();
  PACE_TRY(bundles.status());
  std::stable_sort(bundles->begin(), bundles->end(), [](const Bundle& a, const Bundle& b) { return a.root < b.root; });

  std::vector<int> gpu_of(topology_.vertices().size(), -1);
  for (std::size_t i = 0; i < topology_.gpus().size(); ++i) gpu_of[at(topology_.gpus()[i])] = static_cast<int>(i);
  TreePacking result;
  result.inward = turned != backwards_;
  result.root_weight = *std::max_element(demand_.begin(), demand_.end());
  const Flow shared = std::gcd(rate_.numerator, rate_.denominator * result.root_weight);
  result.rate = {rate_.numerator / shared, rate_.denominator * result.root_weight / shared};
  std::map<std::pair<int, int>, Flow> taken;
  for (const Bundle& bundle : *bundles) {
    PackedTree tree{.root = gpu_of[at(bundle.root)], .weight = bundle.weight, .edges = {}};
    for (const auto& [from, to] : bundle.edges) {
      tree.edges.push_back({gpu_of[at(from)], gpu_of[at(to)],
                            turned ? take(to, from, bundle.weight, taken) : take(from, to, bundle.weight, taken)});
    }
    result.trees.push_back(std::move(tree));
  }
  return result;
}

Result<TreePacking> pack(const Topology& topology, const std::vector<int>& roots, Rate rate, bool backwards) {
  Forest forest(topology, roots, rate, backwards);
  PACE_TRY(forest.split());
  return forest.pack(false);
}

}  // namespace

Result<TreePacking> broadcast_trees(const Topology& topology, int root) {
  const int n = static_cast<int>(topology.gpus().size());
  if (root < 0 || root >= n)
    return Status(Code::invalid_argument,
                  fmt::format("there is no GPU {}: this topology has GPUs 0 to {}", root, n - 1));
  if (n == 1) return TreePacking{};
  return pack(topology, {topology.gpus()[at(root)]}, throughput_bounds(topology).broadcast_from[at(root)], false);
}

Result<TreePacking> all_gather_trees(const Topology& topology) {
  if (topology.gpus().size() == 1) return TreePacking{};
  return pack(topology, topology.gpus(), shard_rate(topology), false);
}

Result<TreePacking> reduce_scatter_trees(const Topology& topology) {
  if (topology.gpus().size() == 1) return TreePacking{};
  return pack(topology, topology.gpus(), shard_rate(topology, true), true);
}

Result<std::vector<TreePacking>> all_reduce_trees(const Topology& topology) {
  const Rate rate = shard_rate(topology);
  if (topology.gpus().size() > 1 && rate == shard_rate(topology, true)) {
    Forest forest(topology, topology.gpus(), rate, false);
    PACE_TRY(forest.split());
    auto gather = forest.pack(false);
    PACE_TRY(gather.status());
    if (auto scatter = forest.pack(true); scatter.ok()) return std::vector{std::move(*scatter), std::move(*gather)};
  }
  auto scatter = reduce_scatter_trees(topology);
  PACE_TRY(scatter.status());
  auto gather = all_gather_trees(topology);
  PACE_TRY(gather.status());
  return std::vector{std::move(*scatter), std::move(*gather)};
}

}  // namespace paceline
