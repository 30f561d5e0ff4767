// Machines and clusters that are known without having them: `paceline topo --preset NAME`.
#pragma once

#include <span>
#include <string_view>

#include "topology/cluster.h"
#include "topology/graph.h"

namespace paceline {

struct Preset {
  std::string_view name;
  std::string_view sentence;  // what it is, for people
  Topology (*node)();         // one of its nodes
  int nodes;                  // how many it has
  Network network;            // between them
};

std::span<const Preset> presets();

// The preset of this name; with `nodes` > 0 as many of its nodes, on one network switch.
// Errors (invalid_argument): an unknown name (the message lists the known ones), more nodes than a cluster may have.
Result<Topology> preset(std::string_view name, int nodes = 0);

}  // namespace paceline
