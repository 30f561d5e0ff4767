#include "tuning/tree_predictions.h"

#include <map>
#include <numeric>
#include <utility>

namespace paceline {
namespace {

// The ways that a packing gives its messages, all trees of a pair of GPUs together, and how much each carries, GB/s.
using PairWays = std::map<std::pair<int, int>, std::map<std::vector<int>, double>>;  // by links

PairWays ways_of(const TreePacking& packing, const Topology& topology) {
  std::map<std::pair<int, int>, int> link_of;
  for (std::size_t l = 0; l < topology.links().size(); ++l)
    link_of.try_emplace({topology.links()[l].from, topology.links()[l].to}, static_cast<int>(l));
  PairWays weights;
  for (const PackedTree& tree : packing.trees) {
    for (const TreeEdge& edge : tree.edges) {
      const auto pair = packing.inward ? std::pair(edge.to, edge.from) : std::pair(edge.from, edge.to);
      for (const Way& way : edge.ways) {
        std::vector<int> links;
        for (std::size_t i = 0; i + 1 < way.vertices.size(); ++i)
          links.push_back(link_of.at({way.vertices[i], way.vertices[i + 1]}));
        weights[pair][links] += static_cast<double>(way.weight) * packing.rate.gbs();
      }
    }
  }
  return weights;
}

double sum_of(const std::map<std::vector<int>, double>& ways) {
  return std::accumulate(ways.begin(), ways.end(), 0.0, [](double sum, const auto& way) { return sum + way.second; });
}

}  // namespace

void give_ways(std::span<const TreePacking> packings, const Topology& topology, WayFinder& finder) {
  PairWays widest;
  for (const TreePacking& packing : packings)
    for (auto& [pair, ways] : ways_of(packing, topology))
      if (sum_of(ways) > sum_of(widest[pair])) widest[pair] = ways;
  for (const auto& [pair, ways] : widest) {
    std::vector<WayPart> parts;
    for (const auto& [links, weight] : ways) parts.push_back({links, weight / sum_of(ways)});
    finder.set(pair.first, pair.second, std::move(parts));
  }
}

Result<std::vector<TreePacking>> trees_of(const Problem& problem, const Topology& topology) {
  const auto alone = [](Result<TreePacking> packing) -> Result<std::vector<TreePacking>> {
    PACE_TRY(packing.status());
    return std::vector{std::move(*packing)};
  };
  switch (problem.collective) {
    case Collective::broadcast: return alone(broadcast_trees(topology, problem.root));
    case Collective::all_gather: return alone(all_gather_trees(topology));
    case Collective::reduce_scatter: return alone(reduce_scatter_trees(topology));
    case Collective::all_reduce: return all_reduce_trees(topology);
    default: return std::vector<TreePacking>();
  }
}

bool has_trees(Collective which) {
  using enum Collective;
  return which == broadcast || which == all_gather || which == reduce_scatter || which == all_reduce;
}

// Where trees of several pairs share PCIe links, fair sharing moves messages by more than a period: that takes much
// slack.
std::vector<TreeTiming> tree_timings(Collective which) {
  std::vector<TreeTiming> timings;
  for (const TreeTiming timing : {TreeTiming{0.1, 1}, {0.2, 1}, {0.3, 2}, {0, 1}, {1.5, 1}, {3, 1}}) {
    if (which == Collective::all_reduce) timings.push_back({timing.slack, timing.channels, true});
    timings.push_back(timing);
  }
  return timings;
}

double bound_of(std::span<const TreePacking> packings, double bytes_of_root) {
  double time = 0;
  for (const TreePacking& packing : packings)
    time += bytes_of_root / (static_cast<double>(packing.root_weight) * packing.rate.gbs() * 1000);
  return time;
}

}  // namespace paceline
