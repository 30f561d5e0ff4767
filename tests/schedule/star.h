// GPUs around one switch that never blocks: each has its own full-duplex cable.
#pragma once

#include <string>

#include "topology/graph.h"

namespace paceline {

inline Topology star(int gpus, double bandwidth_gbs, double latency_us = 0) {
  Topology topology;
  const int middle = topology.add(VertexKind::nvswitch, "switch");
  for (int i = 0; i < gpus; ++i)
    topology.connect(topology.add(VertexKind::gpu, "gpu" + std::to_string(i)), middle, LinkKind::nvlink,
                     {bandwidth_gbs, latency_us});
  return topology;
}

}  // namespace paceline
