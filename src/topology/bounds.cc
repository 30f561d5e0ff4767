#include "topology/bounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/index.h"

namespace paceline {
namespace {

__extension__ using Wide = __int128;

constexpr Rate endless{1, 0};

Rate reduced(Wide numerator, Wide denominator) {
  Wide a = numerator;
  Wide b = denominator;
  while (b != 0) {
    const Wide rest = a % b;
    a = b;
    b = rest;
  }
  numerator /= a;
  denominator /= a;
  // Only figures that no machine has come here; then the last bits go.
  while (numerator > unlimited || denominator > unlimited) {
    numerator /= 2;
    denominator /= 2;
  }
  return {static_cast<Flow>(numerator), static_cast<Flow>(denominator)};
}

// The links' capacities, `scale` times. Edge e is link e; backwards: the other way.
FlowNetwork network_of(const Topology& topology, Flow scale, bool backwards) {
  FlowNetwork network(static_cast<int>(topology.vertices().size()));
  for (const Link& link : topology.links())
    network.add_edge(backwards ? link.to : link.from, backwards ? link.from : link.to, scale * units(link.bandwidth));
  return network;
}

// The GPU that a flow from `source` of at least `needed` does not reach, if there is one; else -1.
int starved(FlowNetwork& network, const Topology& topology, int source, Flow needed) {
  for (const int gpu : topology.gpus())
    if (network.max_flow(source, gpu, needed) < needed) return gpu;
  return -1;
}

Rate times(Rate rate, Flow factor) {
  return rate.denominator == 0 ? rate : reduced(static_cast<Wide>(factor) * rate.numerator, rate.denominator);
}

// Of two phases one after the other: busbw 2 (n-1) x y / (x + y).
Rate both(Rate x, Rate y, Flow n) {
  if (x == y) return times(x, n - 1);
  const Rate sum =
      reduced(static_cast<Wide>(x.numerator) * y.denominator + static_cast<Wide>(y.numerator) * x.denominator,
              static_cast<Wide>(x.denominator) * y.denominator);
  const Rate product =
      reduced(static_cast<Wide>(x.numerator) * y.numerator, static_cast<Wide>(x.denominator) * y.denominator);
  const Rate ratio = reduced(static_cast<Wide>(product.numerator) * sum.denominator,
                             static_cast<Wide>(product.denominator) * sum.numerator);
  return times(ratio, 2 * (n - 1));
}

}  // namespace

Flow units(double gbs) { return static_cast<Flow>(std::llround(gbs * units_per_gbs)); }

Rate shard_rate(const Topology& topology, bool backwards) {
  const auto n = static_cast<Flow>(topology.gpus().size());
  if (n == 1) return endless;
  // A rate that is not too low: what the cut around the poorest GPU allows.
  std::vector<Flow> coming(topology.vertices().size());
  for (const Link& link : topology.links()) coming[at(backwards ? link.from : link.to)] += units(link.bandwidth);
  int poorest = topology.gpus().front();
  for (const int gpu : topology.gpus())
    if (coming[at(gpu)] < coming[at(poorest)]) poorest = gpu;
  Rate rate = reduced(coming[at(poorest)], n - 1);

  for (;;) {
    // All capacities times the denominator: in these units each GPU is fed with the numerator.
    FlowNetwork network = network_of(topology, rate.denominator, backwards);
    const int source = network.add_vertex();
    for (const int gpu : topology.gpus()) network.add_edge(source, gpu, rate.numerator);
    if (starved(network, topology, source, n * rate.numerator) < 0) return rate;
    const auto side = network.source_side(source);
    Flow crossing = 0;
    for (const Link& link : topology.links()) {
      const int from = backwards ? link.to : link.from;
      const int to = backwards ? link.from : link.to;
      if (side[at(from)] && !side[at(to)]) crossing += units(link.bandwidth);
    }
    const auto giving =
        std::count_if(topology.gpus().begin(), topology.gpus().end(), [&](int gpu) { return side[at(gpu)]; });
    rate = reduced(crossing, giving);
  }
}

Bounds throughput_bounds(const Topology& topology) {
  Bounds bounds;
  const auto n = static_cast<Flow>(topology.gpus().size());
  if (n == 1) return {{endless}, endless, 0, endless, endless, endless};
  FlowNetwork network = network_of(topology, 1, false);
  for (const int root : topology.gpus()) {
    Flow least = unlimited;
    for (const int gpu : topology.gpus())
      if (gpu != root) least = network.max_flow(root, gpu, least);
    bounds.broadcast_from.push_back({least, 1});
  }
  const auto worst = std::min_element(bounds.broadcast_from.begin(), bounds.broadcast_from.end(),
                                      [](const Rate& a, const Rate& b) { return a.numerator < b.numerator; });
  bounds.broadcast = *worst;
  bounds.worst_root = static_cast<int>(worst - bounds.broadcast_from.begin());
  const Rate gather = shard_rate(topology);
  const Rate scatter = shard_rate(topology, true);
  bounds.all_gather = times(gather, n - 1);
  bounds.reduce_scatter = times(scatter, n - 1);
  bounds.all_reduce = both(gather, scatter, n);
  return bounds;
}

}  // namespace paceline
