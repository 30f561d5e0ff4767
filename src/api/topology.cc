// The topology as JSON text: what the graph is, how fast collectives on it can be, and what reaches that.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "api/handle.h"
#include "api/topology_request.h"
#include "base/wrong.h"
#include "topology/arborescences.h"
#include "topology/bounds.h"
#include "topology/chain_order.h"
#include "topology/cluster_file.h"
#include "topology/nccl_xml.h"
#include "topology/rings.h"

namespace paceline::api {
namespace {

using nlohmann::json;

json rate(const Rate& rate) { return rate.denominator == 0 ? json() : json(rate.gbs()); }

void add_bounds(const Topology& part, const std::vector<int>& gpus, json& answer) {
  const Bounds bounds = throughput_bounds(part);
  answer["broadcast_gbs"] = rate(bounds.broadcast);
  answer["worst_root"] = gpus[static_cast<std::size_t>(bounds.worst_root)];
  answer["all_gather_gbs"] = rate(bounds.all_gather);
  answer["reduce_scatter_gbs"] = rate(bounds.reduce_scatter);
  answer["all_reduce_busbw_gbs"] = rate(bounds.all_reduce);
}

Status add_trees(const Topology& part, const std::vector<int>& gpus, json& answer) {
  answer["trees"] = json::array();
  if (gpus.size() < 2) return {};
  const auto root = std::find(gpus.begin(), gpus.end(), answer["worst_root"].get<int>()) - gpus.begin();
  const auto packing = broadcast_trees(part, static_cast<int>(root));
  // Where no trees can be found the bound stands all the same.
  if (!packing.ok()) return packing.status().code() == Code::unsupported ? Status() : packing.status();
  for (const PackedTree& tree : packing->trees) {
    json edges = json::array();
    for (const TreeEdge& edge : tree.edges)
      edges.push_back({gpus[static_cast<std::size_t>(edge.from)], gpus[static_cast<std::size_t>(edge.to)]});
    answer["trees"].push_back({{"root", gpus[static_cast<std::size_t>(tree.root)]},
                               {"gbs", static_cast<double>(tree.weight) * packing->rate.gbs()},
                               {"edges", edges}});
  }
  return {};
}

void add_rings(const RingPacking& packing, const std::vector<int>& gpus, json& answer) {
  answer["rings"] = answer["ring_gbs"] = json::array();
  for (const Ring& ring : packing.rings) {
    json order = json::array();
    for (const int gpu : ring.order) order.push_back(gpus[static_cast<std::size_t>(gpu)]);
    answer["rings"].push_back(order);
    answer["ring_gbs"].push_back(static_cast<double>(ring.rate) / units_per_gbs);
  }
  answer["rings_exact"] = packing.exact;
}

Status add_chain(const Topology& topology, const std::vector<int>& gpus, json& answer) {
  const auto chain = least_loaded_chain(topology, gpus);
  PACE_TRY(chain.status());
  const auto named = [&](int vertex) { return vertex < 0 ? json() : json(topology.vertex(vertex).name); };
  answer["chain"] = {{"order", chain->order},
                     {"entry", named(chain->entry)},
                     {"exit", named(chain->exit)},
                     {"max_link_load", chain->max_link_load},
                     {"least_possible", chain->least_possible},
                     {"width_gbs", chain->width}};
  return {};
}

// The kind of a ring's hops, in NCCL's words.
std::string_view hops(const Topology& part) {
  bool nvlink = true;
  bool sockets = false;
  for (const Link& link : part.links()) {
    nvlink = nvlink && link.kind == LinkKind::nvlink;
    sockets = sockets || link.kind == LinkKind::socket;
  }
  return nvlink ? "NVL" : sockets ? "SYS" : "PIX";
}

Result<std::string> describe(const char* text) {
  const json request = json::parse(text, nullptr, false);
  if (!request.is_object()) return wrong("the request is no JSON object");
  auto topology = topology_of(request);
  PACE_TRY(topology.status());
  json answer = json::parse(write_node(*topology));
  if (request.value("nccl_xml_out", json()) == true) {
    const auto xml = write_nccl_topology(*topology);
    PACE_TRY(xml.status());
    answer["nccl_xml"] = *xml;
  }
  const auto gpus = gpus_of(request, *topology);
  PACE_TRY(gpus.status());
  answer["gpus"] = *gpus;
  if (!topology->gpus().empty()) {
    const auto part = select(*topology, *gpus);
    PACE_TRY(part.status());
    const RingPacking rings = pack_rings(*part);
    add_bounds(*part, *gpus, answer);
    PACE_TRY(add_trees(*part, *gpus, answer));
    add_rings(rings, *gpus, answer);
    PACE_TRY(add_chain(*topology, *gpus, answer));
    answer["nccl_rings"] = write_nccl_rings(rings, *gpus, hops(*part));
  }
  return answer.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace
}  // namespace paceline::api

using namespace paceline;
using namespace paceline::api;

extern "C" paceResult_t paceTopology(const char* request, const char** answer) {
  return give_answer<describe>(request, answer);
}
