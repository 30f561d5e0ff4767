#include "topology/paths.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/index.h"
#include "topology/chain_order.h"

namespace paceline {
namespace {

// Searches of orders and trees on more GPUs take too long.
constexpr std::size_t most_for_orders = 256;
constexpr std::size_t most_for_trees = 32;

Status unsupported(std::string why) { return Status(Code::unsupported, std::move(why)); }

Topology turned_round(const Topology& topology) {
  Topology turned;
  for (const Vertex& vertex : topology.vertices()) turned.add(vertex);
  for (const Link& link : topology.links()) turned.link(link.to, link.from, link.kind, {link.bandwidth, link.latency});
  return turned;
}

// A cluster whose GPUs that are on NVLink have no faster PCIe than the network: what more there is would serve
// neighbours that NVLink reaches as well, and messages to a NIC, with which it shares the GPU's link, would get less
// than the NIC takes, for links are shared fairly and not as trees plan. On two HGX H200 that costs 15%, and this 2.5%.
Topology with_pcie_for_nics(const Topology& topology) {
  std::vector<bool> on_nvlink(topology.vertices().size());
  double network = 0;
  for (const Link& link : topology.links()) {
    if (link.kind == LinkKind::nvlink) on_nvlink[at(link.from)] = on_nvlink[at(link.to)] = true;
    if (link.kind == LinkKind::network && topology.vertex(link.from).kind == VertexKind::nic)
      network = std::max(network, link.bandwidth);
  }
  Topology narrowed;
  for (const Vertex& vertex : topology.vertices()) narrowed.add(vertex);
  for (const Link& link : topology.links()) {
    const bool narrow =
        network > 0 && link.kind == LinkKind::pcie && (on_nvlink[at(link.from)] || on_nvlink[at(link.to)]);
    narrowed.link(link.from, link.to, link.kind,
                  {narrow ? std::min(link.bandwidth, network) : link.bandwidth, link.latency});
  }
  return narrowed;
}

Result<std::vector<TreePacking>> alone(Result<TreePacking> packing) {
  PACE_TRY(packing.status());
  return std::vector{std::move(*packing)};
}

}  // namespace

Paths::Paths(Topology topology, std::vector<int> gpus) : topology_(std::move(topology)), gpus_(std::move(gpus)) {}

const Result<std::vector<int>>& Paths::chain(int root, bool inward) {
  const auto found = chains_.find({root, inward});
  if (found != chains_.end()) return found->second;
  return chains_.emplace(std::pair(root, inward), search_chain(root, inward)).first->second;
}

const Result<Topology>& Paths::part() {
  if (!part_) part_ = select_part();
  return *part_;
}

const Result<RingPacking>& Paths::rings() {
  if (!rings_) rings_ = search_rings();
  return *rings_;
}

const Result<std::vector<TreePacking>>& Paths::trees(Collective which, int root) {
  if (which != Collective::broadcast) root = 0;
  const auto found = trees_.find({which, root});
  if (found != trees_.end()) return found->second;
  return trees_.emplace(std::pair(which, root), search_trees(which, root)).first->second;
}

bool Paths::has_trees(Collective which) {
  using enum Collective;
  return which == broadcast || which == all_gather || which == reduce_scatter || which == all_reduce;
}

Result<std::vector<int>> Paths::search_chain(int root, bool inward) const {
  if (gpus_.size() > most_for_orders) return unsupported(fmt::format("no order is searched for {} ranks", ranks()));
  const Topology topology = with_one_nvswitch(inward ? turned_round(topology_) : topology_);
  const auto chain = least_loaded_chain(topology, gpus_, gpus_[at(root)]);
  PACE_TRY(chain.status());
  std::vector<int> order;
  for (const int gpu : chain->order) order.push_back(static_cast<int>(std::ranges::find(gpus_, gpu) - gpus_.begin()));
  return order;
}

Result<Topology> Paths::select_part() const {
  if (gpus_.size() > most_for_trees) return unsupported(fmt::format("none are packed for {} ranks", ranks()));
  auto part = select(topology_, gpus_);
  PACE_TRY(part.status());
  const std::size_t vertices = part->vertices().size();
  if (vertices > most_vertices_for_trees)
    return unsupported(fmt::format("none are packed in a graph of {} GPUs, CPUs, switches and NICs", vertices));
  return part;
}

Result<RingPacking> Paths::search_rings() {
  PACE_TRY(part().status());
  RingPacking packing = pack_rings(*part());
  if (packing.rings.empty())
    return unsupported(packing.exact ? "no ring passes all of these GPUs"
                                     : "no ring was found before the search was given up");
  return packing;
}

Result<std::vector<TreePacking>> Paths::search_trees(Collective which, int root) {
  PACE_TRY(part().status());
  const Topology topology = with_pcie_for_nics(*part());
  switch (which) {
    case Collective::broadcast: return alone(broadcast_trees(topology, root));
    case Collective::all_gather: return alone(all_gather_trees(topology));
    case Collective::reduce_scatter: return alone(reduce_scatter_trees(topology));
    case Collective::all_reduce: return all_reduce_trees(topology);
    default: return unsupported("no trees are packed for it");
  }
}

}  // namespace paceline
