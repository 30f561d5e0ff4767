#include "tuning/topology_costs.h"

#include <algorithm>
#include <limits>

namespace paceline {

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

  constexpr double at_once = 1e15;
  CostModel model;
  model.start = machine.start;
  model.step = machine.step;
  model.bandwidth = std::min({bandwidth, machine.send_bandwidth, at_once});
  model.reduce_bandwidth = std::min(machine.reduce_bandwidth, at_once);
  model.copy_bandwidth = std::min(machine.copy_bandwidth, at_once);
  model.duplex = 1;
  model.multicast_share = machine.multicast ? 0 : 1;
  model.element = element_bytes;
  model.largest_chunk = std::size_t{1} << 40;
  return model;
}

}  // namespace paceline
