#include "topology/graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "base/index.h"
#include "base/wrong.h"

namespace paceline {
namespace {

constexpr double least_bandwidth = 1e-6;
constexpr double most_bandwidth = 1e6;

std::string describe(const Topology& topology, const Link& link) {
  return fmt::format("the link from {} to {}", topology.vertex(link.from).name, topology.vertex(link.to).name);
}

// What can be reached from `start`, over links that `usable` holds for. Backwards: what can reach it.
std::vector<bool> reached(const Topology& topology, int start, bool backwards,
                          const std::function<bool(const Link&)>& usable) {
  std::vector<std::vector<int>> next(topology.vertices().size());
  for (const Link& link : topology.links()) {
    if (!usable(link)) continue;
    const int from = backwards ? link.to : link.from;
    const int to = backwards ? link.from : link.to;
    next[at(from)].push_back(to);
  }
  std::vector<bool> seen(topology.vertices().size());
  std::vector<int> open{start};
  seen[at(start)] = true;
  while (!open.empty()) {
    const int here = open.back();
    open.pop_back();
    for (const int to : next[at(here)]) {
      if (seen[at(to)]) continue;
      seen[at(to)] = true;
      open.push_back(to);
    }
  }
  return seen;
}

// A pair of GPUs (vertices) of which the first has no way to the second, or {-1, -1}.
std::pair<int, int> apart(const Topology& topology, const std::function<bool(const Link&)>& usable) {
  const int first = topology.gpus().front();
  const auto from_first = reached(topology, first, false, usable);
  const auto to_first = reached(topology, first, true, usable);
  for (const int gpu : topology.gpus()) {
    if (!from_first[at(gpu)]) return {first, gpu};
    if (!to_first[at(gpu)]) return {gpu, first};
  }
  return {-1, -1};
}

Status check_connected(const Topology& topology) {
  const auto [from, to] = apart(topology, [](const Link&) { return true; });
  if (from < 0) return {};
  return wrong(fmt::format("there is no way from {} to {}", topology.vertex(from).name, topology.vertex(to).name));
}

// The vertices that `keep` holds for, in the order given, and the links among them that `usable` holds for.
Topology restricted(const Topology& whole, const std::vector<int>& keep,
                    const std::function<bool(const Link&)>& usable) {
  Topology part;
  std::vector<int> place(whole.vertices().size(), -1);
  for (const int index : keep) {
    place[at(index)] = part.add(whole.vertex(index));
  }
  for (const Link& link : whole.links()) {
    const int from = place[at(link.from)];
    const int to = place[at(link.to)];
    if (from >= 0 && to >= 0 && usable(link)) part.link(from, to, link.kind, {link.bandwidth, link.latency});
  }
  return part;
}

// With the links alone that `usable` holds for, if these connect all GPUs.
Topology restricted_if_connected(const Topology& topology, const std::function<bool(const Link&)>& usable) {
  if (apart(topology, usable).first >= 0) return topology;
  std::vector<int> all(topology.vertices().size());
  std::iota(all.begin(), all.end(), 0);
  return restricted(topology, all, usable);
}

// Without the vertices that no way between two GPUs passes.
Topology without_dead_ends(const Topology& topology) {
  const std::size_t n = topology.vertices().size();
  std::vector<std::set<int>> neighbours(n);  // that are no dead ends
  for (const Link& link : topology.links()) {
    neighbours[at(link.from)].insert(link.to);
    neighbours[at(link.to)].insert(link.from);
  }
  std::vector<bool> dead(n);
  std::vector<int> found;
  const auto look_at = [&](int vertex) {
    const auto i = at(vertex);
    if (dead[i] || topology.vertex(vertex).kind == VertexKind::gpu || neighbours[i].size() > 1) return;
    dead[i] = true;
    found.push_back(vertex);
  };
  for (std::size_t i = 0; i < n; ++i) look_at(static_cast<int>(i));
  while (!found.empty()) {
    const int end = found.back();
    found.pop_back();
    for (const int other : neighbours[at(end)]) {
      neighbours[at(other)].erase(end);
      look_at(other);
    }
  }
  std::vector<int> keep;
  for (std::size_t i = 0; i < n; ++i)
    if (!dead[i]) keep.push_back(static_cast<int>(i));
  return restricted(topology, keep, [](const Link&) { return true; });
}

}  // namespace

std::string_view name(VertexKind kind) {
  switch (kind) {
    case VertexKind::gpu: return "gpu";
    case VertexKind::cpu: return "cpu";
    case VertexKind::root_port: return "root port";
    case VertexKind::pcie_switch: return "pcie switch";
    case VertexKind::nic: return "nic";
    case VertexKind::nvswitch: return "nvswitch";
    case VertexKind::network_switch: return "network switch";
  }
  return "unknown";
}

std::string_view name(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink: return "nvlink";
    case LinkKind::pcie: return "pcie";
    case LinkKind::socket: return "socket";
    case LinkKind::network: return "network";
    case LinkKind::c2c: return "c2c";
  }
  return "unknown";
}

int Topology::add(VertexKind kind, std::string name, int node) {
  return add(Vertex{.kind = kind, .name = std::move(name), .node = node});
}

int Topology::add(Vertex vertex) {
  const int index = static_cast<int>(vertices_.size());
  if (vertex.kind == VertexKind::gpu) gpus_.push_back(index);
  vertices_.push_back(std::move(vertex));
  return index;
}

void Topology::link(int from, int to, LinkKind kind, Rating rating) {
  // A rating that makes no sense stays a link of its own, for validate() to name.
  const auto sensible = [](double bandwidth, double latency) { return bandwidth > 0 && latency >= 0; };
  const auto [known, fresh] = number_of_.try_emplace({from, to, kind}, links_.size());
  Link* other = fresh ? nullptr : &links_[known->second];
  if (other != nullptr && sensible(other->bandwidth, other->latency) && sensible(rating.bandwidth, rating.latency)) {
    other->bandwidth += rating.bandwidth;
    other->latency = std::max(other->latency, rating.latency);
    return;
  }
  links_.push_back({from, to, rating.bandwidth, rating.latency, kind});
}

void Topology::connect(int a, int b, LinkKind kind, Rating rating) {
  link(a, b, kind, rating);
  link(b, a, kind, rating);
}

int Topology::nodes() const {
  int nodes = 0;
  for (const Vertex& vertex : vertices_) nodes = std::max(nodes, vertex.node + 1);
  return nodes;
}

std::vector<int> Topology::of_kind(VertexKind kind) const {
  std::vector<int> found;
  for (std::size_t i = 0; i < vertices_.size(); ++i)
    if (vertices_[i].kind == kind) found.push_back(static_cast<int>(i));
  return found;
}

std::vector<std::vector<int>> Topology::leaving() const {
  std::vector<std::vector<int>> leaving(vertices_.size());
  for (std::size_t i = 0; i < links_.size(); ++i) leaving[at(links_[i].from)].push_back(static_cast<int>(i));
  return leaving;
}

Status validate(const Topology& topology) {
  if (topology.gpus().empty()) return wrong("the topology has no GPU");
  std::set<std::string_view> names;
  for (const Vertex& vertex : topology.vertices())
    if (!names.insert(vertex.name).second) return wrong(fmt::format("two vertices are called {}", vertex.name));
  const int n = static_cast<int>(topology.vertices().size());
  for (const Link& link : topology.links()) {
    if (link.from < 0 || link.from >= n || link.to < 0 || link.to >= n)
      return wrong(fmt::format("a link from vertex {} to vertex {}, but there are {}", link.from, link.to, n));
    if (link.from == link.to) return wrong(describe(topology, link) + " leads nowhere");
    if (!(link.bandwidth >= least_bandwidth && link.bandwidth <= most_bandwidth))
      return wrong(fmt::format("{} has a bandwidth of {} GB/s: it must be from {} to {}", describe(topology, link),
                               link.bandwidth, least_bandwidth, most_bandwidth));
    if (!(link.latency >= 0 && std::isfinite(link.latency)))
      return wrong(
          fmt::format("{} has a latency of {} us: it must be 0 or more", describe(topology, link), link.latency));
  }
  return check_connected(topology);
}

Result<Topology> select(const Topology& topology, std::span<const int> gpus) {
  if (gpus.empty()) return wrong("no GPU is selected");
  const int known = static_cast<int>(topology.gpus().size());
  std::vector<int> keep;
  std::set<int> nodes;
  for (const int gpu : gpus) {
    if (gpu < 0 || gpu >= known)
      return wrong(fmt::format("there is no GPU {}: this topology has GPUs 0 to {}", gpu, known - 1));
    const int vertex = topology.gpus()[at(gpu)];
    if (std::find(keep.begin(), keep.end(), vertex) != keep.end())
      return wrong(fmt::format("GPU {} is selected twice", gpu));
    keep.push_back(vertex);
    nodes.insert(topology.vertex(vertex).node);
  }
  for (std::size_t i = 0; i < topology.vertices().size(); ++i) {
    const Vertex& vertex = topology.vertices()[i];
    if (vertex.kind == VertexKind::gpu || (vertex.node >= 0 && !nodes.contains(vertex.node))) continue;
    keep.push_back(static_cast<int>(i));
  }
  Topology part = restricted(topology, keep, [](const Link&) { return true; });
  if (nodes.size() == 1) {
    part = restricted_if_connected(part, [](const Link& link) { return link.kind != LinkKind::network; });
    part = restricted_if_connected(part, [](const Link& link) { return link.kind == LinkKind::nvlink; });
  }
  part = without_dead_ends(part);
  PACE_TRY(check_connected(part));
  return part;
}

// A part keeps the links' order, and of links with the same ends and kind all or none.
std::vector<int> links_in_whole(const Topology& part, const Topology& whole) {
  std::map<std::string_view, int> place;  // in the part
  for (std::size_t v = 0; v < part.vertices().size(); ++v) place[part.vertices()[v].name] = static_cast<int>(v);
  std::vector<int> in_part(whole.vertices().size(), -1);
  for (std::size_t v = 0; v < in_part.size(); ++v)
    if (const auto found = place.find(whole.vertices()[v].name); found != place.end()) in_part[v] = found->second;
  std::vector<int> numbers;
  for (std::size_t l = 0; l < whole.links().size() && numbers.size() < part.links().size(); ++l) {
    const Link& link = whole.links()[l];
    const Link& wanted = part.links()[numbers.size()];
    if (in_part[at(link.from)] == wanted.from && in_part[at(link.to)] == wanted.to && link.kind == wanted.kind)
      numbers.push_back(static_cast<int>(l));
  }
  return numbers;
}

namespace {

// By NVSwitch of a node in which all of them are alike: the first of these.
std::map<int, int> first_of_alike(const Topology& topology) {
  // By node: what each of its NVSwitches is linked with, and at which bandwidth.
  std::map<int, std::map<int, std::set<std::pair<int, double>>>> fans;
  for (const int nvswitch : topology.of_kind(VertexKind::nvswitch)) fans[topology.vertex(nvswitch).node][nvswitch];
  for (const Link& link : topology.links()) {
    for (const auto& [vertex, other] : {std::pair(link.from, link.to), std::pair(link.to, link.from)})
      if (topology.vertex(vertex).kind == VertexKind::nvswitch)
        fans[topology.vertex(vertex).node][vertex].emplace(other, link.bandwidth);
  }
  std::map<int, int> first;
  for (const auto& [node, fan] : fans) {
    std::set<std::set<int>> linked;
    bool even = true;
    for (const auto& [nvswitch, rates] : fan) {
      std::set<int> others;
      for (const auto& [other, bandwidth] : rates) {
        others.insert(other);
        even = even && bandwidth == rates.begin()->second;
      }
      linked.insert(others);
    }
    if (!even || linked.size() > 1) continue;
    for (const auto& [nvswitch, rates] : fan) first[nvswitch] = fan.begin()->first;
  }
  return first;
}

}  // namespace

Topology with_one_nvswitch(const Topology& topology, std::vector<int>* part_of) {
  const std::map<int, int> stands_for = first_of_alike(topology);
  Topology result;
  std::vector<int> place(topology.vertices().size());
  for (std::size_t i = 0; i < place.size(); ++i) {
    const Vertex& vertex = topology.vertices()[i];
    const auto found = stands_for.find(static_cast<int>(i));
    place[i] =
        found != stands_for.end() && found->second != found->first ? place[at(found->second)] : result.add(vertex);
  }
  std::map<std::pair<int, int>, Link> merged;  // links of NVSwitches
  std::map<std::pair<int, int>, std::vector<std::size_t>> parts;
  std::vector<int> number(topology.links().size());
  for (std::size_t l = 0; l < number.size(); ++l) {
    const Link& link = topology.links()[l];
    const int from = place[at(link.from)];
    const int to = place[at(link.to)];
    if (!stands_for.contains(link.from) && !stands_for.contains(link.to)) {
      number[l] = static_cast<int>(result.links().size());
      result.link(from, to, link.kind, {link.bandwidth, link.latency});
      continue;
    }
    parts[{from, to}].push_back(l);
    Link& sum = merged.try_emplace({from, to}, Link{from, to, 0, link.latency, link.kind}).first->second;
    sum.bandwidth += link.bandwidth;
  }
  for (const auto& [ends, link] : merged) {
    for (const std::size_t part : parts[ends]) number[part] = static_cast<int>(result.links().size());
    result.link(link.from, link.to, link.kind, {link.bandwidth, link.latency});
  }
  if (part_of != nullptr) *part_of = std::move(number);
  return result;
}

}  // namespace paceline
