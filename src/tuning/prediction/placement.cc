// Where launchers put ranks.
#include <fmt/core.h>

#include <map>

#include "base/index.h"
#include "tuning/prediction/prediction.h"

namespace paceline {
namespace {

// The nearest CPU; -1 if there is none in reach.
int cpu_of(const Topology& topology, const std::vector<std::vector<int>>& leaving, int gpu) {
  std::vector<int> level{gpu};
  std::vector<bool> seen(topology.vertices().size());
  for (seen[at(gpu)] = true; !level.empty();) {
    std::vector<int> next;
    for (const int here : level) {
      if (topology.vertex(here).kind == VertexKind::cpu) return here;
      for (const int l : leaving[at(here)]) {
        const int to = topology.link(l).to;
        const VertexKind kind = topology.vertex(to).kind;
        const bool above = kind == VertexKind::cpu || kind == VertexKind::root_port || kind == VertexKind::pcie_switch;
        if (seen[at(to)] || !above) continue;
        seen[at(to)] = true;
        next.push_back(to);
      }
    }
    level = std::move(next);
  }
  return -1;
}

}  // namespace

Result<std::vector<int>> placement(const Topology& topology, std::string_view by) {
  const auto gpus = static_cast<int>(topology.gpus().size());
  std::vector<int> result;
  if (by == "gpu") {
    for (int gpu = 0; gpu < gpus; ++gpu) result.push_back(gpu);
    return result;
  }
  if (by != "socket" && by != "node")
    return Status(Code::invalid_argument,
                  fmt::format("ranks are placed by 'gpu', 'socket' or 'node', not by '{}'", by));
  const auto leaving = topology.leaving();
  // Rounds, one after another; in each every group gives one GPU.
  std::map<int, std::map<int, std::vector<int>>> groups;  // by what is gone through first, and in turn
  for (int gpu = 0; gpu < gpus; ++gpu) {
    const int vertex = topology.gpus()[at(gpu)];
    const int node = topology.vertex(vertex).node;
    if (by == "node")
      groups[0][node].push_back(gpu);
    else
      groups[node][cpu_of(topology, leaving, vertex)].push_back(gpu);
  }
  for (const auto& [first, turns] : groups) {
    for (std::size_t round = 0, left = 1; left > 0; ++round) {
      left = 0;
      for (const auto& [group, members] : turns) {
        if (round < members.size()) result.push_back(members[round]);
        left += round + 1 < members.size();
      }
    }
  }
  return result;
}

}  // namespace paceline
