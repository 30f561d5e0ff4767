#include "tuning/prediction/topology_costs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "base/index.h"

namespace paceline {
namespace {

// Ranks of each node, if they are equally many, node after node; else 1.
int node_ranks(const Topology& topology, std::span<const int> gpus) {
  const auto node = [&](std::size_t rank) {
    return topology.vertex(topology.gpus()[static_cast<std::size_t>(gpus[rank])]).node;
  };
  std::size_t first = 1;
  while (first < gpus.size() && node(first) == node(0)) ++first;
  if (gpus.size() % first != 0) return 1;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    if (node(rank) != node(rank / first * first)) return 1;
    if (rank >= first && rank % first == 0 && node(rank) == node(rank - first)) return 1;
  }
  return static_cast<int>(first);
}

// Bytes per us from the GPUs' memory into their hosts': of the slowest GPU, by its own widest link. Nothing where no
// GPU has a link to its host.
std::optional<double> host_copy_rate(const Topology& topology, std::span<const int> gpus) {
  std::map<int, double> widest;  // by vertex
  for (const Link& link : topology.links())
    if (link.kind == LinkKind::pcie || link.kind == LinkKind::c2c)
      widest[link.from] = std::max(widest[link.from], link.bandwidth * 1000);
  std::optional<double> slowest;
  for (const int gpu : gpus)
    if (const auto own = widest.find(topology.gpus()[at(gpu)]); own != widest.end())
      slowest = std::min(slowest.value_or(own->second), own->second);
  return slowest;
}

}  // namespace

CostModel cost_model_of(WayFinder& finder, std::span<const int> gpus, const Machine& machine,
                        std::size_t element_bytes) {
  const Topology& topology = finder.topology();
  std::vector<double> streams(topology.links().size());
  const auto each = [&](auto visit) {
    for (std::size_t rank = 0; rank < gpus.size(); ++rank)
      for (const WayPart& way : finder.between(gpus[rank], gpus[(rank + 1) % gpus.size()]))
        for (const int link : way.links) visit(static_cast<std::size_t>(link), way.part);
  };
  each([&](std::size_t link, double part) { streams[link] += part; });
  double bandwidth = std::numeric_limits<double>::infinity();
  each([&](std::size_t link, double) {
    bandwidth = std::min(bandwidth, topology.links()[link].bandwidth * 1000 / std::max(1.0, streams[link]));
  });

  constexpr double at_once = CostModel::at_once;
  CostModel model;
  model.start = model.chunk_start = model.node_start = machine.start;
  model.step = machine.step;
  model.partner = model.board = model.receiver = 0;
  model.bandwidth = std::min({bandwidth, machine.send_bandwidth, at_once});
  model.reduce_bandwidth = std::min(machine.reduce_bandwidth, at_once);
  model.write_bandwidth = at_once;
  model.copy_bandwidth = std::min(machine.copy_bandwidth, at_once);
  model.duplex = 1;
  model.multicast_share = machine.multicast ? 0 : 1;
  model.passing_share = 1;
  model.common_share = 0;
  model.node_ranks = node_ranks(topology, gpus);
  model.element = element_bytes;
  model.largest_chunk = std::size_t{1} << 40;
  return model;
}

NodeRates node_rates(WayFinder& finder, std::span<const int> gpus, const Machine& machine, const CostModel& model) {
  const Topology& topology = finder.topology();
  const auto node = [&](int gpu) { return topology.vertex(topology.gpus()[at(gpu)]).node; };
  const auto elsewhere = [&](int gpu) { return node(gpu) != node(gpus.front()); };
  const auto other = std::ranges::find_if(gpus, elsewhere);
  const std::optional<double> pcie = host_copy_rate(topology, gpus);
  if (other == gpus.end()) return {model.bandwidth, model.bandwidth, pcie.value_or(model.bandwidth)};
  std::vector<double> streams(topology.links().size());
  for (const int gpu : gpus) {
    // Messages leave a node by the same NIC wherever they go.
    const int partner = elsewhere(gpu) ? gpus.front() : *other;
    for (const WayPart& way : finder.between(gpu, partner))
      for (const int link : way.links)
        if (topology.vertex(topology.link(link).from).node == node(gpu)) streams[at(link)] += way.part;
    for (const WayPart& way : finder.between(partner, gpu))
      for (const int link : way.links)
        if (topology.vertex(topology.link(link).to).node == node(gpu)) streams[at(link)] += way.part;
  }
  NodeRates rates{machine.send_bandwidth, machine.send_bandwidth, 0};
  for (std::size_t l = 0; l < streams.size(); ++l) {
    if (streams[l] == 0) continue;
    const double bandwidth = topology.links()[l].bandwidth * 1000;
    rates.alone = std::min(rates.alone, bandwidth);
    rates.shared = std::min(rates.shared, bandwidth / std::max(1.0, streams[l]));
  }
  rates.pcie = pcie.value_or(rates.alone);
  return rates;
}

}  // namespace paceline
