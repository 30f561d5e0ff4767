#include "topology/cluster.h"

#include <fmt/core.h>

#include "base/wrong.h"

namespace paceline {
namespace {

constexpr int most_nodes = 1 << 16;

Status check(const Topology& node, int nodes, const Network& network) {
  if (nodes < 1 || nodes > most_nodes)
    return wrong(fmt::format("a cluster has 1 to {} nodes, not {}", most_nodes, nodes));
  if (nodes > 1 && node.of_kind(VertexKind::nic).empty())
    return wrong("the node has no NIC, so no cluster can be made of it");
  if (network.nodes_per_leaf < 0)
    return wrong(
        fmt::format("{} nodes a leaf switch: it must be 1 or more, or 0 for one switch", network.nodes_per_leaf));
  if (network.spines < 1) return wrong(fmt::format("{} spine switches: it must be 1 or more", network.spines));
  if (!(network.oversubscription > 0))
    return wrong(fmt::format("an oversubscription of {}: it must be above 0", network.oversubscription));
  return {};
}

}  // namespace

Result<Topology> cluster(const Topology& node, int nodes, const Network& network) {
  PACE_TRY(check(node, nodes, network));
  if (nodes == 1) return node;
  const int per_leaf = network.nodes_per_leaf == 0 ? nodes : network.nodes_per_leaf;
  const int leaves = (nodes + per_leaf - 1) / per_leaf;
  const auto nics = node.of_kind(VertexKind::nic);

  Topology whole;
  std::vector<int> leaf;
  for (int i = 0; i < nodes; ++i) {
    std::vector<int> place(node.vertices().size(), -1);
    for (std::size_t v = 0; v < place.size(); ++v) {
      Vertex vertex = node.vertices()[v];
      if (vertex.kind == VertexKind::network_switch) continue;
      vertex.name = fmt::format("node{}/{}", i, vertex.name);
      vertex.node = i;
      place[v] = whole.add(std::move(vertex));
    }
    for (const Link& link : node.links()) {
      const int from = place[static_cast<std::size_t>(link.from)];
      const int to = place[static_cast<std::size_t>(link.to)];
      if (from >= 0 && to >= 0) whole.link(from, to, link.kind, {link.bandwidth, link.latency});
    }
    if (i % per_leaf == 0)
      leaf.push_back(whole.add(VertexKind::network_switch, fmt::format("leaf{}", leaf.size()), -1));
    for (const int nic : nics)
      whole.connect(place[static_cast<std::size_t>(nic)], leaf.back(), LinkKind::network, network.nic);
  }
  if (leaves == 1) {
    PACE_TRY(validate(whole));
    return whole;
  }
  const double up = network.nic.bandwidth * static_cast<double>(nics.size()) * per_leaf / network.oversubscription;
  for (int s = 0; s < network.spines; ++s) {
    const int spine = whole.add(VertexKind::network_switch, fmt::format("spine{}", s), -1);
    for (const int l : leaf) whole.connect(l, spine, LinkKind::network, {up / network.spines, network.nic.latency});
  }
  PACE_TRY(validate(whole));
  return whole;
}

}  // namespace paceline
