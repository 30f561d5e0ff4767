#include "topology/way_finder.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/index.h"

namespace paceline {
namespace {

std::uint64_t pair_key(int from, int to) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 | static_cast<std::uint32_t>(to);
}

// Which of the parts that a cluster repeats each vertex is in: its node; where nodes are at several network switches,
// its leaf switch and what is at that. -1: it is between them. Empty: some node is at no switch, or at several.
std::vector<int> parts_of(const Topology& topology) {
  std::vector<int> parts;
  for (const Vertex& vertex : topology.vertices()) parts.push_back(vertex.node);
  const std::size_t switches = topology.of_kind(VertexKind::network_switch).size();
  if (switches == 0) return {};
  if (switches == 1) return parts;
  std::vector<int> leaves(at(topology.nodes()), -1);  // by node
  for (const Link& link : topology.links()) {
    const int node = topology.vertex(link.from).node;
    if (node < 0 || topology.vertex(link.to).kind != VertexKind::network_switch) continue;
    if (leaves[at(node)] >= 0 && leaves[at(node)] != link.to) return {};
    leaves[at(node)] = link.to;
  }
  std::map<int, int> part_of_leaf;
  for (const int leaf : leaves) {
    if (leaf < 0) return {};
    part_of_leaf.try_emplace(leaf, static_cast<int>(part_of_leaf.size()));
  }
  for (int& part : parts)
    if (part >= 0) part = part_of_leaf[leaves[at(part)]];
  for (const auto& [leaf, part] : part_of_leaf) parts[at(leaf)] = part;
  return parts;
}

}  // namespace

class WayFinder::Search {
 public:
  explicit Search(const Topology& topology)
      : topology_(topology), leaving_(topology.leaving()), trees_(topology.vertices().size()) {
    for (const int nvswitch : topology.of_kind(VertexKind::nvswitch))
      if (topology.vertex(nvswitch).node < 0) nvlink_trees_.resize(trees_.size());
    gpus_of_node_.resize(at(topology.nodes()) + 1);
    for (std::size_t g = 0; g < topology.gpus().size(); ++g)
      gpus_beside(static_cast<int>(g)).push_back(static_cast<int>(g));
  }

  std::vector<int> find_way(int from_gpu, int to_gpu) {
    const int from = topology_.gpus()[at(from_gpu)];
    const int to = topology_.gpus()[at(to_gpu)];
    if (from == to) return {};
    std::vector<int> links;
    if (!nvlink_trees_.empty() && append(links, nvlink_tree_of(from), from, to)) return links;
    if (topology_.vertex(from).node == topology_.vertex(to).node) {
      if (append(links, from, to)) return links;
    } else {
      const int out = nic_of(from_gpu);
      const int in = nic_of(to_gpu);
      if (out >= 0 && in >= 0 && append(links, from, out) && cross(links, out, in) && append(links, in, to))
        return links;
    }
    return anyhow(from, to);
  }

 private:
  struct Reached {
    int vertex = 0;
    int by = -1;  // the last link
    int hops = 0;
    double width = 0;
  };
  using Tree = std::vector<Reached>;  // by vertex

  // Level by level from a vertex, over the links that `inside` admits; GPUs do not relay.
  template <class Inside>
  Tree search(int start, Inside inside) const {
    std::map<int, Reached> reached{{start, {start, -1, 0, std::numeric_limits<double>::infinity()}}};
    std::vector<int> level{start};
    for (int hops = 1; !level.empty(); ++hops) {
      std::vector<int> next;
      for (const int here : level) {
        if (here != start && topology_.vertex(here).kind == VertexKind::gpu) continue;
        for (const int l : leaving_[at(here)]) {
          const Link& link = topology_.link(l);
          if (!inside(link)) continue;
          const Reached candidate{link.to, l, hops, std::min(reached[here].width, link.bandwidth)};
          const auto [place, fresh] = reached.try_emplace(link.to, candidate);
          if (fresh) next.push_back(link.to);
          if (place->second.hops == hops && candidate.width > place->second.width) place->second = candidate;
        }
      }
      level = std::move(next);
    }
    Tree tree;
    for (const auto& [vertex, found] : reached) tree.push_back(found);
    return tree;
  }

  static const Reached* find(const Tree& tree, int vertex) {
    const auto place = std::lower_bound(tree.begin(), tree.end(), vertex,
                                        [](const Reached& reached, int v) { return reached.vertex < v; });
    return place == tree.end() || place->vertex != vertex ? nullptr : &*place;
  }

  // Within the vertex's node.
  const Tree& tree_of(int vertex) {
    Tree& tree = trees_[at(vertex)];
    if (tree.empty())
      tree = search(vertex, [&, node = topology_.vertex(vertex).node](const Link& link) {
        return topology_.vertex(link.to).node == node;
      });
    return tree;
  }

  // Over NVLink alone, also to the GPUs of other nodes.
  const Tree& nvlink_tree_of(int gpu) {
    Tree& tree = nvlink_trees_[at(gpu)];
    if (tree.empty()) tree = search(gpu, [](const Link& link) { return link.kind == LinkKind::nvlink; });
    return tree;
  }

  bool append(std::vector<int>& links, const Tree& tree, int from, int to) const {
    const std::size_t begin = links.size();
    for (int here = to; here != from;) {
      const Reached* reached = find(tree, here);
      if (reached == nullptr) return false;
      links.push_back(reached->by);
      here = topology_.link(reached->by).from;
    }
    std::reverse(links.begin() + static_cast<std::ptrdiff_t>(begin), links.end());
    return true;
  }
  bool append(std::vector<int>& links, int from, int to) { return append(links, tree_of(from), from, to); }

  // Itself and the others of its node.
  std::vector<int>& gpus_beside(int gpu) {
    return gpus_of_node_[at(topology_.vertex(topology_.gpus()[at(gpu)]).node + 1)];
  }

  // Of each GPU; -1: there is none. Found for all GPUs of a node at once: of the nearest, each takes the one that
  // fewest of those before it have taken, however they are numbered.
  int nic_of(int gpu) {
    if (const auto known = nic_of_.find(gpu); known != nic_of_.end()) return known->second;
    std::map<int, int> taken;  // by NIC
    for (const int each : gpus_beside(gpu)) {
      const std::vector<int> nearest = nearest_nics(each);
      const auto nic = std::ranges::min_element(nearest, {}, [&](int one) { return taken[one]; });
      nic_of_[each] = nic == nearest.end() ? -1 : *nic;
      if (nic != nearest.end()) ++taken[*nic];
    }
    return nic_of_[gpu];
  }
  std::vector<int> nearest_nics(int gpu) {
    std::vector<int> nearest;
    const Reached* best = nullptr;
    for (const Reached& reached : tree_of(topology_.gpus()[at(gpu)])) {
      if (topology_.vertex(reached.vertex).kind != VertexKind::nic || reached.hops == 0) continue;
      if (best == nullptr || reached.hops < best->hops || (reached.hops == best->hops && reached.width > best->width)) {
        best = &reached;
        nearest.clear();
      }
      if (reached.hops == best->hops && reached.width == best->width) nearest.push_back(reached.vertex);
    }
    return nearest;
  }

  bool cross(std::vector<int>& links, int out, int in) {
    if (entering_nic_.empty()) sort_network_links();
    int here = out;
    for (int hops = 0; here != in; ++hops) {
      const int link = link_towards(here, in);
      if (link < 0 || hops > 16) return false;
      links.push_back(link);
      here = topology_.link(link).to;
    }
    return true;
  }

  // To the NIC, or nearer to the switch that it is at; -1: there is none. Of a switch's many links those to NICs are
  // not looked at.
  int link_towards(int here, int nic) {
    for (const int l : entering_nic_[at(nic)])
      if (topology_.link(l).from == here) return l;
    std::vector<int> nearer;
    int least = std::numeric_limits<int>::max();
    for (const int l : leaving_to_switch_[at(here)]) {
      const int distance = distance_to(topology_.link(l).to, nic);
      if (distance < least) nearer.clear();
      least = std::min(least, distance);
      if (distance == least && distance < std::numeric_limits<int>::max()) nearer.push_back(l);
    }
    return nearer.empty() ? -1 : nearer[turn_of(nic) % nearer.size()];
  }

  void sort_network_links() {
    entering_nic_.resize(topology_.vertices().size());
    leaving_to_switch_.resize(topology_.vertices().size());
    for (std::size_t l = 0; l < topology_.links().size(); ++l) {
      const Link& link = topology_.links()[l];
      const VertexKind to = topology_.vertex(link.to).kind;
      if (to == VertexKind::nic) entering_nic_[at(link.to)].push_back(static_cast<int>(l));
      if (to == VertexKind::network_switch) leaving_to_switch_[at(link.from)].push_back(static_cast<int>(l));
    }
  }

  // The NIC's number among those at its switch.
  std::size_t turn_of(int nic) {
    if (turns_.empty()) {
      turns_.resize(topology_.vertices().size());
      std::vector<std::size_t> nics(turns_.size());  // by switch
      for (const int each : topology_.of_kind(VertexKind::nic))
        for (const int l : leaving_[at(each)])
          if (const int leaf = topology_.link(l).to; topology_.vertex(leaf).kind == VertexKind::network_switch) {
            turns_[at(each)] = nics[at(leaf)]++;
            break;
          }
    }
    return turns_[at(nic)];
  }

  // Links from a network switch to a NIC, over network switches.
  int distance_to(int from, int nic) {
    int least = std::numeric_limits<int>::max();
    for (const int l : leaving_[at(nic)]) {  // its cables go both ways
      const int leaf = topology_.link(l).to;
      if (topology_.vertex(leaf).kind != VertexKind::network_switch) continue;
      const std::vector<int>& distances = distances_to(leaf);
      if (const int hops = distances[at(switch_number_[at(from)])]; hops >= 0) least = std::min(least, hops + 1);
    }
    return least;
  }
  // Links from each network switch to this one, over network switches; -1: no way.
  const std::vector<int>& distances_to(int target) {
    if (switches_before_.empty()) number_switches();
    std::vector<int>& distances = distances_[target];
    if (!distances.empty()) return distances;
    distances.assign(switches_before_.size(), -1);
    std::vector<int> level{switch_number_[at(target)]};
    distances[at(level[0])] = 0;
    for (int hops = 1; !level.empty(); ++hops) {
      std::vector<int> next;
      for (const int here : level) {
        for (const int before : switches_before_[at(here)]) {
          if (distances[at(before)] >= 0) continue;
          distances[at(before)] = hops;
          next.push_back(before);
        }
      }
      level = std::move(next);
    }
    return distances;
  }
  void number_switches() {
    const std::vector<int> switches = topology_.of_kind(VertexKind::network_switch);
    switch_number_.assign(topology_.vertices().size(), -1);
    for (std::size_t s = 0; s < switches.size(); ++s) switch_number_[at(switches[s])] = static_cast<int>(s);
    switches_before_.resize(switches.size());
    for (const Link& link : topology_.links())
      if (switch_number_[at(link.from)] >= 0 && switch_number_[at(link.to)] >= 0)
        switches_before_[at(switch_number_[at(link.to)])].push_back(switch_number_[at(link.from)]);
  }

  std::vector<int> anyhow(int from, int to) const {
    std::vector<int> links;
    if (!append(links, search(from, [](const Link&) { return true; }), from, to)) links.clear();
    return links;
  }

  const Topology& topology_;
  std::vector<std::vector<int>> leaving_;
  std::vector<Tree> trees_;                              // by vertex; empty until asked for
  std::vector<Tree> nvlink_trees_;                       // likewise; none where no NVSwitch joins nodes
  std::vector<std::vector<int>> gpus_of_node_;           // by node + 1
  std::unordered_map<int, int> nic_of_;                  // by GPU, of those asked for and the others of their nodes
  std::vector<std::vector<int>> entering_nic_;           // links by vertex, of the NICs; empty until asked for
  std::vector<std::vector<int>> leaving_to_switch_;      // links by vertex: to network switches; likewise
  std::vector<std::size_t> turns_;                       // by vertex, of the NICs; empty until asked for
  std::vector<int> switch_number_;                       // by vertex, of the network switches
  std::vector<std::vector<int>> switches_before_;        // by a switch's number: those with a link to it
  std::unordered_map<int, std::vector<int>> distances_;  // by target; of all pairs they would fill the memory
};

WayFinder::WayFinder(const Topology& topology) : topology_(topology), search_(std::make_unique<Search>(topology)) {}
WayFinder::WayFinder(WayFinder&&) noexcept = default;
WayFinder::~WayFinder() = default;

const std::vector<WayPart>& WayFinder::between(int from, int to) {
  const auto [place, fresh] = known_.try_emplace(pair_key(from, to));
  if (fresh) {
    WayPart way{.links = search_->find_way(from, to)};
    if (!same_as_.empty())
      for (int& link : way.links) link = same_as_[at(link)];
    if (!way.links.empty()) place->second.push_back(std::move(way));
  }
  return place->second;
}

void WayFinder::set(int from, int to, std::vector<WayPart> ways) { known_[pair_key(from, to)] = std::move(ways); }

int WayFinder::fold() {
  const std::vector<int> parts = parts_of(topology_);
  if (parts.empty()) return 0;
  const int count = *std::max_element(parts.begin(), parts.end()) + 1;
  const auto gpus = static_cast<int>(topology_.gpus().size());
  if (count < 2 || gpus % count != 0) return 0;
  // A vertex's number in its part; below 0 for each that is between them.
  std::vector<int> number(parts.size());
  std::vector<int> vertices(at(count));
  int between = 0;
  int joining = 0;  // NVSwitches
  for (std::size_t v = 0; v < parts.size(); ++v) {
    number[v] = parts[v] >= 0 ? vertices[at(parts[v])]++ : -++between;
    if (parts[v] < 0 && topology_.vertices()[v].kind == VertexKind::nvswitch) ++joining;
  }
  if (joining > 1) return 0;
  for (int g = 0; g < gpus; ++g) {
    const int vertex = topology_.gpus()[at(g)];
    const int first = topology_.gpus()[at(g % (gpus / count))];
    if (parts[at(vertex)] != g / (gpus / count) || number[at(vertex)] != number[at(first)]) return 0;
  }
  using Place = std::tuple<int, int, double, double>;  // ends, bandwidth, latency
  std::map<Place, int> first;
  std::vector<int> same(topology_.links().size());
  std::map<Place, int> copies;
  for (std::size_t l = 0; l < same.size(); ++l) {
    const Link& link = topology_.links()[l];
    const Place place{number[at(link.from)], number[at(link.to)], link.bandwidth, link.latency};
    same[l] = first.try_emplace(place, static_cast<int>(l)).first->second;
    ++copies[place];
  }
  for (const auto& [place, times] : copies)
    if (times != count) return 0;
  same_as_ = std::move(same);
  known_.clear();
  return gpus / count;
}

}  // namespace paceline
