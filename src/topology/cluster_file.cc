#include "topology/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/json_fields.h"
#include "base/wrong.h"
#include "topology/cluster.h"
#include "topology/link_rates.h"
#include "topology/presets.h"

namespace paceline {
namespace {

using nlohmann::json;

constexpr double most = 1e9;

// An object of the file, whose fields are asked for one by one; what nobody asked for is an error in the end.
class Fields {
 public:
  static Result<Fields> of(const json& value, std::string place) {
    if (!value.is_object()) return wrong(fmt::format("{} must be an object", place));
    return Fields(value, std::move(place));
  }

  const json* find(const char* key) {
    const auto found = value_->find(key);
    if (found == value_->end()) return nullptr;
    ++known_;
    return &*found;
  }
  [[nodiscard]] std::string place(const char* key) const { return fmt::format("{}.{}", place_, key); }

  // Missing: `otherwise`, and an error where there is none.
  Result<double> number(const char* key, std::optional<double> otherwise = {}) {
    const json* field = find(key);
    if (field == nullptr && otherwise) return *otherwise;
    if (field == nullptr || !field->is_number()) return wrong(fmt::format("{} must be a number", place(key)));
    const double value = field->get<double>();
    if (!(value >= -most && value <= most)) return wrong(fmt::format("{} is out of range", place(key)));
    return value;
  }
  Result<int> integer(const char* key, std::optional<int> otherwise = {}) {
    const auto value = number(key, otherwise ? std::optional<double>(*otherwise) : std::nullopt);
    if (!value.ok()) return value.status();
    if (*value != std::floor(*value)) return wrong(fmt::format("{} must be a whole number", place(key)));
    return static_cast<int>(*value);
  }
  Result<std::string> text(const char* key) {
    const json* field = find(key);
    if (field == nullptr || !field->is_string()) return wrong(fmt::format("{} must be a text", place(key)));
    return field->get<std::string>();
  }
  Result<const json*> list(const char* key) {
    const json* field = find(key);
    if (field == nullptr || !field->is_array()) return wrong(fmt::format("{} must be a list", place(key)));
    return field;
  }
  // Ok if every field was asked for.
  [[nodiscard]] Status all_known(std::string_view known) const {
    if (known_ == value_->size()) return {};
    return wrong(fmt::format("{} has a field that is not known: it may have {}", place_, known));
  }

 private:
  Fields(const json& value, std::string place) : value_(&value), place_(std::move(place)) {}
  const json* value_;
  std::string place_;
  std::size_t known_ = 0;
};

template <class Kind>
Result<Kind> kind_named(std::string_view text, std::initializer_list<Kind> kinds, const std::string& place) {
  std::string known;
  for (const Kind kind : kinds) {
    if (name(kind) == text) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name(kind));
  }
  return wrong(fmt::format("{} is '{:.40}': it must be one of {}", place, text, known));
}

Status read_vertex(const json& value, const std::string& place, Topology& topology, std::map<std::string, int>& named) {
  auto fields = Fields::of(value, place);
  PACE_TRY(fields.status());
  const auto name = fields->text("name");
  PACE_TRY(name.status());
  const auto text = fields->text("kind");
  PACE_TRY(text.status());
  const auto kind = kind_named(*text,
                               {VertexKind::gpu, VertexKind::cpu, VertexKind::root_port, VertexKind::pcie_switch,
                                VertexKind::nic, VertexKind::nvswitch, VertexKind::network_switch},
                               fields->place("kind"));
  PACE_TRY(kind.status());
  const auto capability = fields->integer("compute_capability", 0);
  PACE_TRY(capability.status());
  PACE_TRY(fields->all_known("name, kind, compute_capability"));
  const int node = *kind == VertexKind::network_switch ? -1 : 0;
  const int vertex = topology.add({.kind = *kind, .name = *name, .node = node, .compute_capability = *capability});
  if (!named.emplace(*name, vertex).second) return wrong(fmt::format("two vertices are called {:.40}", *name));
  return {};
}

Status read_link(const json& value, const std::string& place, Topology& topology,
                 const std::map<std::string, int>& named) {
  auto fields = Fields::of(value, place);
  PACE_TRY(fields.status());
  const auto vertex = [&](const json& end) -> Result<int> {
    const auto found = end.is_string() ? named.find(end.get<std::string>()) : named.end();
    if (found == named.end()) return wrong(fmt::format("{} ends at {:.40}, which is no vertex", place, end.dump()));
    return found->second;
  };
  std::vector<int> ends;
  const json* between = fields->find("between");
  if (between != nullptr && between->is_array() && between->size() == 2) {
    for (const json& end : *between) {
      const auto found = vertex(end);
      PACE_TRY(found.status());
      ends.push_back(*found);
    }
  } else {
    for (const char* key : {"from", "to"}) {
      const json* end = fields->find(key);
      if (end == nullptr || between != nullptr)
        return wrong(fmt::format("{} must have \"between\": two names, or \"from\" and \"to\"", place));
      const auto found = vertex(*end);
      PACE_TRY(found.status());
      ends.push_back(*found);
    }
  }
  const auto text = fields->text("kind");
  PACE_TRY(text.status());
  const auto kind =
      kind_named(*text, {LinkKind::nvlink, LinkKind::pcie, LinkKind::socket, LinkKind::network, LinkKind::c2c},
                 fields->place("kind"));
  PACE_TRY(kind.status());
  const auto gbs = fields->number("gbs");
  PACE_TRY(gbs.status());
  const auto latency = fields->number("latency_us", 0);
  PACE_TRY(latency.status());
  PACE_TRY(fields->all_known("between or from and to, kind, gbs, latency_us"));
  topology.link(ends[0], ends[1], *kind, {*gbs, *latency});
  if (between != nullptr) topology.link(ends[1], ends[0], *kind, {*gbs, *latency});
  return {};
}

Result<Topology> read_node(const json* value) {
  if (value == nullptr) return wrong("the file must have a node");
  auto fields = Fields::of(*value, "node");
  PACE_TRY(fields.status());
  if (value->contains("preset")) {
    const auto name = fields->text("preset");
    PACE_TRY(name.status());
    PACE_TRY(fields->all_known("preset, or vertices and links"));
    return preset(*name, 1);
  }
  Topology topology;
  std::map<std::string, int> named;
  const auto vertices = fields->list("vertices");
  PACE_TRY(vertices.status());
  for (std::size_t i = 0; i < (*vertices)->size(); ++i)
    PACE_TRY(read_vertex((**vertices)[i], fmt::format("node.vertices[{}]", i), topology, named));
  const auto links = fields->list("links");
  PACE_TRY(links.status());
  for (std::size_t i = 0; i < (*links)->size(); ++i)
    PACE_TRY(read_link((**links)[i], fmt::format("node.links[{}]", i), topology, named));
  PACE_TRY(fields->all_known("preset, or vertices and links"));
  PACE_TRY(validate(topology));
  return topology;
}

Result<Network> read_network(const json& value) {
  auto fields = Fields::of(value, "network");
  PACE_TRY(fields.status());
  const auto gbs = fields->number("nic_gbs");
  PACE_TRY(gbs.status());
  const auto latency = fields->number("latency_us", network_latency);
  PACE_TRY(latency.status());
  if (!(*gbs > 0)) return wrong(fmt::format("{} is {}: it must be above 0", fields->place("nic_gbs"), *gbs));
  if (!(*latency >= 0))
    return wrong(fmt::format("{} is {}: it must be 0 or more", fields->place("latency_us"), *latency));
  const auto per_leaf = fields->integer("nodes_per_leaf", 0);
  PACE_TRY(per_leaf.status());
  const auto spines = fields->integer("spines", 1);
  PACE_TRY(spines.status());
  const auto oversubscription = fields->number("oversubscription", 1);
  PACE_TRY(oversubscription.status());
  PACE_TRY(fields->all_known("nic_gbs, latency_us, nodes_per_leaf, spines, oversubscription"));
  return Network{{*gbs, *latency}, *per_leaf, *spines, *oversubscription};
}

}  // namespace

Result<Topology> read_cluster(std::string_view text) {
  std::string fault;
  const json file = parse_json(text, &fault);
  if (file.is_discarded()) return wrong(fmt::format("the cluster file is not JSON that can be read: {}", fault));
  auto fields = Fields::of(file, "the file");
  PACE_TRY(fields.status());
  const auto node = read_node(fields->find("node"));
  PACE_TRY(node.status());
  const auto nodes = fields->integer("nodes", 1);
  PACE_TRY(nodes.status());
  const json* network_field = fields->find("network");
  PACE_TRY(fields->all_known("node, nodes, network"));
  if (network_field == nullptr && *nodes > 1) return wrong("a cluster of several nodes must have a network");
  const auto network = network_field == nullptr ? Result<Network>(Network{}) : read_network(*network_field);
  PACE_TRY(network.status());
  constexpr std::size_t most_vertices = 1 << 20;
  if (*nodes > 0 && static_cast<std::size_t>(*nodes) > most_vertices / node->vertices().size())
    return wrong(
        fmt::format("{} nodes of {} vertices are more than {}", *nodes, node->vertices().size(), most_vertices));
  constexpr std::size_t most_links = 4 * most_vertices;
  if (*nodes > 0 && static_cast<std::size_t>(*nodes) > most_links / std::max<std::size_t>(1, node->links().size()))
    return wrong(fmt::format("{} nodes of {} links are more than {}", *nodes, node->links().size(), most_links));
  const int leaves = network->nodes_per_leaf > 0 ? (*nodes - 1) / network->nodes_per_leaf + 1 : 1;
  if (leaves > 1 && network->spines > static_cast<int>(most_vertices) / leaves)
    return wrong(fmt::format("{} spines for {} leaves: that is too many", network->spines, leaves));
  return cluster(*node, *nodes, *network);
}

std::string write_node(const Topology& topology) {
  json vertices = json::array();
  for (const Vertex& vertex : topology.vertices()) {
    json row{{"name", vertex.name}, {"kind", name(vertex.kind)}};
    if (vertex.compute_capability != 0) row["compute_capability"] = vertex.compute_capability;
    vertices.push_back(std::move(row));
  }
  json links = json::array();
  for (const Link& link : topology.links())
    links.push_back({{"from", topology.vertex(link.from).name},
                     {"to", topology.vertex(link.to).name},
                     {"kind", name(link.kind)},
                     {"gbs", link.bandwidth},
                     {"latency_us", link.latency}});
  return json{{"vertices", vertices}, {"links", links}}.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace paceline
