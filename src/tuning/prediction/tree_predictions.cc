#include "tuning/prediction/tree_predictions.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/index.h"

namespace paceline {
namespace {

// The ways that a packing gives its messages, all trees of a pair of GPUs together, and how much each carries, GB/s.
using PairWays = std::map<std::pair<int, int>, std::map<std::vector<int>, double>>;  // by links

// The links from one vertex to another: several of different kinds carry what all of them can.
struct Hop {
  std::vector<int> links;
  double bandwidth = 0;  // GB/s of all together
};
using Hops = std::map<std::pair<int, int>, Hop>;

Hops hops_of(const Topology& topology) {
  Hops hops;
  for (std::size_t l = 0; l < topology.links().size(); ++l) {
    const Link& link = topology.links()[l];
    Hop& hop = hops[{link.from, link.to}];
    hop.links.push_back(static_cast<int>(l));
    hop.bandwidth += link.bandwidth;
  }
  return hops;
}

// Each link of a hop gets its share of what goes this way: those of the first hop from 0 to 1 in their order, those of
// the next from 0 to 1 again; from one border between two shares to the next, the same links carry all.
void spread(const Way& way, double weight, const Hops& hops, const Topology& topology,
            std::map<std::vector<int>, double>& into) {
  for (double done = 0; done < 1;) {
    double border = 1;
    std::vector<int> links;
    for (std::size_t i = 0; i + 1 < way.vertices.size(); ++i) {
      const Hop& hop = hops.at({way.vertices[i], way.vertices[i + 1]});
      std::size_t which = 0;
      double end = topology.link(hop.links[0]).bandwidth / hop.bandwidth;
      while (end <= done + 1e-9 && which + 1 < hop.links.size())
        end += topology.link(hop.links[++which]).bandwidth / hop.bandwidth;
      links.push_back(hop.links[which]);
      if (which + 1 < hop.links.size()) border = std::min(border, end);
    }
    into[links] += weight * (border - done);
    done = border;
  }
}

PairWays ways_of(const TreePacking& packing, const Topology& topology) {
  const Hops hops = hops_of(topology);
  PairWays weights;
  for (const PackedTree& tree : packing.trees) {
    for (const TreeEdge& edge : tree.edges) {
      const auto pair = packing.inward ? std::pair(edge.to, edge.from) : std::pair(edge.from, edge.to);
      for (const Way& way : edge.ways)
        spread(way, static_cast<double>(way.weight) * packing.rate.gbs(), hops, topology, weights[pair]);
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

// Where trees of several pairs share PCIe links, fair sharing moves messages by more than a period: that takes much
// slack.
std::vector<TreeTiming> tree_timings(Collective which) {
  using enum TreeChannels;
  std::vector<TreeTiming> timings;
  for (const auto& [channels, slacks] : {std::pair{halves, std::vector{0.1, 0.3, 0.45, 0.6, 0.8, 1.5}},
                                         {one, {0.1, 0.2, 0, 1.5, 3}},
                                         {by_tree, {0.3, 0.6, 3}}}) {
    for (const double slack : slacks) {
      if (which == Collective::all_reduce) timings.push_back({slack, channels, true});
      timings.push_back({slack, channels});
    }
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
