// The topology as JSON text: what the graph is, how fast collectives on it can be, and what reaches that.

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "api/handle.h"
#include "api/topology_request.h"
#include "base/index.h"
#include "base/json_fields.h"
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

// On more GPUs these searches take too long, and a larger graph fills the memory before anybody reads it.
constexpr std::size_t most_for_bounds = 128;  // and the chain
constexpr std::size_t most_for_trees = 64;    // and the rings
constexpr std::size_t most_vertices = 200'000;

json rate(const Rate& rate) { return rate.denominator == 0 ? json() : json(rate.gbs()); }

void add_bounds(const Topology& part, const std::vector<int>& gpus, json& answer) {
  const Bounds bounds = throughput_bounds(part);
  answer["broadcast_gbs"] = rate(bounds.broadcast);
  answer["worst_root"] = gpus[at(bounds.worst_root)];
  answer["all_gather_gbs"] = rate(bounds.all_gather);
  answer["reduce_scatter_gbs"] = rate(bounds.reduce_scatter);
  answer["all_reduce_busbw_gbs"] = rate(bounds.all_reduce);
}

Status add_trees(const Topology& part, const std::vector<int>& gpus, json& answer) {
  answer["trees"] = json::array();
  if (gpus.size() < 2) return {};
  const auto root = std::find(gpus.begin(), gpus.end(), answer["worst_root"].get<int>()) - gpus.begin();
  const auto packing = broadcast_trees(part, static_cast<int>(root));
  if (!packing.ok()) {
    // Where none can be found the bound stands all the same.
    if (packing.status().code() != Code::unsupported) return packing.status();
    answer["trees"] = nullptr;
    answer["no_trees"] = packing.status().message();
    return {};
  }
  for (const PackedTree& tree : packing->trees) {
    json edges = json::array();
    for (const TreeEdge& edge : tree.edges) edges.push_back({gpus[at(edge.from)], gpus[at(edge.to)]});
    answer["trees"].push_back({{"root", gpus[at(tree.root)]},
                               {"gbs", static_cast<double>(tree.weight) * packing->rate.gbs()},
                               {"edges", edges}});
  }
  return {};
}

void add_rings(const RingPacking& packing, const std::vector<int>& gpus, json& answer) {
  answer["rings"] = answer["ring_gbs"] = json::array();
  for (const Ring& ring : packing.rings) {
    json order = json::array();
    for (const int gpu : ring.order) order.push_back(gpus[at(gpu)]);
    answer["rings"].push_back(order);
    answer["ring_gbs"].push_back(static_cast<double>(ring.rate) / units_per_gbs);
  }
  answer["rings_exact"] = packing.exact;
}

Status add_chain(const Topology& whole, const std::vector<int>& gpus, json& answer) {
  const Topology topology = with_one_nvswitch(whole);
  const auto chain = least_loaded_chain(topology, gpus);
  if (!chain.ok()) {
    // Where there is none the rest of the answer stands all the same.
    if (chain.status().code() != Code::unsupported) return chain.status();
    answer["chain"] = nullptr;
    answer["no_chain"] = chain.status().message();
    return {};
  }
  const auto named = [&](int vertex) { return vertex < 0 ? json() : json(topology.vertex(vertex).name); };
  answer["chain"] = {{"order", chain->order},
                     {"entry", named(chain->entry)},
                     {"exit", named(chain->exit)},
                     {"max_link_load", chain->max_link_load},
                     {"least_possible", chain->least_possible},
                     {"width_gbs", chain->width}};
  return {};
}

// What answers have no more of.
struct Limit {
  const char* name;
  std::size_t most;
};

// In the order of the answer's text.
void leave_out(std::string_view what, Limit beyond, std::initializer_list<const char*> fields, json& answer) {
  answer["left_out"].push_back({{"what", what}, {beyond.name, beyond.most}});
  for (const char* field : fields) answer[field] = nullptr;
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

// null: the rings pass several nodes, and say nothing of the NICs that NCCL's graph has between them.
json nccl_rings(const RingPacking& rings, const Topology& topology, const std::vector<int>& gpus,
                const Topology& part) {
  const std::vector<int> known = nccl_devices(topology);
  std::vector<int> devices;
  std::set<int> nodes;
  for (const int gpu : gpus) {
    devices.push_back(known[at(gpu)]);
    nodes.insert(topology.vertex(topology.gpus()[at(gpu)]).node);
  }
  return nodes.size() > 1 ? json() : json(write_nccl_rings(rings, devices, hops(part)));
}

// What can be reached on the GPUs.
Status add_findings(const Topology& topology, const std::vector<int>& gpus, json& answer) {
  answer["left_out"] = json::array();
  const auto part = select(topology, gpus);
  PACE_TRY(part.status());
  if (gpus.size() > most_for_bounds)
    leave_out("bounds", {"beyond_gpus", most_for_bounds},
              {"broadcast_gbs", "worst_root", "all_gather_gbs", "reduce_scatter_gbs", "all_reduce_busbw_gbs"}, answer);
  else
    add_bounds(*part, gpus, answer);
  const bool many_gpus = gpus.size() > most_for_trees;
  if (many_gpus || part->vertices().size() > most_vertices_for_trees) {
    const Limit limit =
        many_gpus ? Limit{"beyond_gpus", most_for_trees} : Limit{"beyond_vertices", most_vertices_for_trees};
    leave_out("rings", limit, {"rings", "ring_gbs", "rings_exact", "nccl_rings"}, answer);
    leave_out("trees", limit, {"trees"}, answer);
  } else {
    const RingPacking rings = pack_rings(*part);
    PACE_TRY(add_trees(*part, gpus, answer));
    add_rings(rings, gpus, answer);
    answer["nccl_rings"] = nccl_rings(rings, topology, gpus, *part);
  }
  if (gpus.size() <= most_for_bounds) return add_chain(topology, gpus, answer);
  leave_out("chain", {"beyond_gpus", most_for_bounds}, {"chain"}, answer);
  return {};
}

// That the machine has no GPU is no error, unless one is asked for. There is then nothing to find.
Status add_nothing(const json& request, const std::vector<int>& gpus, json& answer) {
  for (const char* field : {"broadcast_gbs", "worst_root", "all_gather_gbs", "reduce_scatter_gbs",
                            "all_reduce_busbw_gbs", "rings", "ring_gbs", "rings_exact", "trees", "chain"})
    answer[field] = nullptr;
  answer["left_out"] = json::array();
  if (gpus.empty()) return {};
  const bool here = !request.contains("preset") && !request.contains("file") && !request.contains("nccl_xml");
  return wrong(fmt::format("there is no GPU {}: this {} has none", gpus[0], here ? "machine" : "topology"));
}

Result<std::string> describe(const char* text) {
  const json request = parse_object(text);
  if (request.is_discarded()) return wrong("the request is no JSON object");
  auto topology = topology_of(request);
  PACE_TRY(topology.status());
  if (topology->vertices().size() > most_vertices)
    return wrong(fmt::format("{} GPUs, switches and NICs are too many to show: at most {}", topology->vertices().size(),
                             most_vertices));
  json answer = json::parse(write_node(*topology));
  if (request.value("nccl_xml_out", json()) == true) {
    const auto xml = write_nccl_topology(*topology);
    PACE_TRY(xml.status());
    answer["nccl_xml"] = *xml;
  }
  const auto gpus = gpus_of(request, *topology);
  PACE_TRY(gpus.status());
  answer["gpus"] = *gpus;
  PACE_TRY(topology->gpus().empty() ? add_nothing(request, *gpus, answer) : add_findings(*topology, *gpus, answer));
  return answer.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace
}  // namespace paceline::api

using namespace paceline;
using namespace paceline::api;

extern "C" paceResult_t paceTopology(const char* request, const char** answer) {
  return give_answer<describe>(request, answer);
}
