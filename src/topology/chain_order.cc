#include "topology/chain_order.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/index.h"
#include "base/wrong.h"
#include "topology/route.h"

namespace paceline {
namespace {

// Backtracking over orders with a limit on every link's load.
class Search {
 public:
  // `root`: the place in `gpus` that comes first; -1: any.
  Search(const Topology& topology, const ShortestRoutes& routes, const std::vector<int>& gpus, int root);

  // From now on the stream comes in through one of these vertices and goes out through one; none: it does neither.
  // False, and nothing changes, where no GPU is reached from any of them, or none reaches any.
  bool set_ends(const std::vector<int>& nics);

  enum class Outcome { found, impossible, gave_up };
  // An order that loads no link more than `load` and has links of at least `width` GB/s between its GPUs.
  Outcome run(int load, double width, std::int64_t& steps);
  [[nodiscard]] const std::vector<int>& order() const { return order_; }  // by place in `gpus`
  [[nodiscard]] int entry() const { return entry_; }
  [[nodiscard]] int exit() const { return exit_; }

 private:
  struct Hop {
    int to = 0;  // place in `gpus`; of ways out: a vertex
    double width = 0;
    std::vector<int> links;
  };
  struct Entry {
    int nic = -1;
    std::vector<Hop> hops;
  };
  [[nodiscard]] std::vector<Hop> hops_from(int vertex) const;
  Outcome extend(const std::vector<Hop>& hops, std::int64_t& steps);
  Outcome leave();
  [[nodiscard]] bool take(const std::vector<int>& links);
  void release(const std::vector<int>& links, std::size_t count);

  const ShortestRoutes& routes_;
  const std::vector<int>& gpus_;
  int root_;
  std::vector<std::vector<Hop>> next_;  // by place, nearest first
  std::vector<Entry> entries_;
  std::vector<std::vector<Hop>> out_;  // by place; empty where the stream does not go out
  std::vector<int> load_;              // by link
  std::vector<bool> used_;             // by place
  int ways_out_left_ = 0;              // places with a way out that are not used
  std::vector<int> order_;
  int entry_ = -1;
  int exit_ = -1;
  int most_ = 0;
  double width_ = 0;
};

Search::Search(const Topology& topology, const ShortestRoutes& routes, const std::vector<int>& gpus, int root)
    : routes_(routes), gpus_(gpus), root_(root), load_(topology.links().size()) {
  for (const int gpu : gpus) next_.push_back(hops_from(gpu));
  set_ends({});
}

std::vector<Search::Hop> Search::hops_from(int vertex) const {
  std::vector<Hop> hops;
  for (std::size_t to = 0; to < gpus_.size(); ++to)
    if (auto links = routes_.between(vertex, gpus_[to]); !links.empty())
      hops.push_back({static_cast<int>(to), routes_.width(vertex, gpus_[to]), std::move(links)});
  std::ranges::stable_sort(hops, [](const Hop& a, const Hop& b) {
    return a.links.size() != b.links.size() ? a.links.size() < b.links.size() : a.width > b.width;
  });
  return hops;
}

bool Search::set_ends(const std::vector<int>& nics) {
  std::vector<Entry> entries;
  std::vector<std::vector<Hop>> out(gpus_.size());
  for (const int nic : nics) {
    if (auto hops = hops_from(nic); !hops.empty()) entries.push_back({nic, std::move(hops)});
    for (std::size_t place = 0; place < gpus_.size(); ++place)
      if (auto links = routes_.between(gpus_[place], nic); !links.empty())
        out[place].push_back({nic, 0, std::move(links)});
  }
  const auto leads_out = [](const std::vector<Hop>& ways) { return !ways.empty(); };
  if (!nics.empty() && (entries.empty() || std::ranges::none_of(out, leads_out))) return false;
  if (nics.empty()) {
    entries.emplace_back();
    for (int i = 0; i < static_cast<int>(gpus_.size()); ++i)
      if (root_ < 0 || i == root_) entries.back().hops.push_back({i, 0, {}});
    out.clear();
  }
  entries_ = std::move(entries);
  out_ = std::move(out);
  return true;
}

bool Search::take(const std::vector<int>& links) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    if (load_[at(links[i])] == most_) {
      release(links, i);
      return false;
    }
    ++load_[at(links[i])];
  }
  return true;
}

void Search::release(const std::vector<int>& links, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) --load_[at(links[i])];
}

Search::Outcome Search::run(int load, double width, std::int64_t& steps) {
  most_ = load;
  width_ = width;
  load_.assign(load_.size(), 0);
  used_.assign(gpus_.size(), false);
  order_.clear();
  exit_ = -1;
  ways_out_left_ = static_cast<int>(std::ranges::count_if(out_, [](const auto& ways) { return !ways.empty(); }));
  for (const Entry& entry : entries_) {
    entry_ = entry.nic;
    if (const Outcome outcome = extend(entry.hops, steps); outcome != Outcome::impossible) return outcome;
  }
  return Outcome::impossible;
}

Search::Outcome Search::extend(const std::vector<Hop>& hops, std::int64_t& steps) {
  if (order_.size() == gpus_.size()) return out_.empty() ? Outcome::found : leave();
  if (!out_.empty() && ways_out_left_ == 0) return Outcome::impossible;
  for (const Hop& hop : hops) {
    if (used_[at(hop.to)] || (!order_.empty() && hop.width < width_)) continue;
    if (--steps < 0) return Outcome::gave_up;
    if (!take(hop.links)) continue;
    const int way_out = !out_.empty() && !out_[at(hop.to)].empty() ? 1 : 0;
    used_[at(hop.to)] = true;
    ways_out_left_ -= way_out;
    order_.push_back(hop.to);
    if (const Outcome outcome = extend(next_[at(hop.to)], steps); outcome != Outcome::impossible) return outcome;
    order_.pop_back();
    ways_out_left_ += way_out;
    used_[at(hop.to)] = false;
    release(hop.links, hop.links.size());
  }
  return Outcome::impossible;
}

Search::Outcome Search::leave() {
  for (const Hop& way : out_[at(order_.back())]) {
    if (!take(way.links)) continue;
    exit_ = way.to;
    return Outcome::found;
  }
  return Outcome::impossible;
}

// One of those that hang at the same vertices by the same links: it serves as well as any of them.
std::vector<int> different(const Topology& topology, const std::vector<int>& nics) {
  using Cable = std::tuple<int, bool, LinkKind, double>;  // other end, away from the NIC, kind, bandwidth
  std::map<int, std::multiset<Cable>> cables;
  for (const int nic : nics) cables[nic];
  for (const Link& link : topology.links()) {
    if (cables.contains(link.from)) cables[link.from].emplace(link.to, true, link.kind, link.bandwidth);
    if (cables.contains(link.to)) cables[link.to].emplace(link.from, false, link.kind, link.bandwidth);
  }
  std::set<std::multiset<Cable>> seen;
  std::vector<int> kept;
  for (const int nic : nics)
    if (seen.insert(cables[nic]).second) kept.push_back(nic);
  return kept;
}

double narrowest(const Topology& topology, const ShortestRoutes& routes, const std::vector<int>& order) {
  double width = 0;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const double hop = routes.width(topology.gpus()[at(order[i])], topology.gpus()[at(order[i + 1])]);
    width = i == 0 ? hop : std::min(width, hop);
  }
  return width;
}

std::vector<int> loads(const Topology& topology, const ShortestRoutes& routes, const Chain& chain) {
  std::vector<int> load(topology.links().size());
  int here = chain.entry;
  const auto go = [&](int to) {
    if (here >= 0 && to >= 0)
      for (const int link : routes.between(here, to)) ++load[at(link)];
    here = to;
  };
  for (const int gpu : chain.order) go(topology.gpus()[at(gpu)]);
  go(chain.exit);
  return load;
}

int largest(const std::vector<int>& load) { return load.empty() ? 0 : *std::max_element(load.begin(), load.end()); }

// The NICs of the node that all these vertices are on; none: they are on several.
std::vector<int> nics_of_one_node(const Topology& topology, const std::vector<int>& vertices) {
  const int node = topology.vertex(vertices.front()).node;
  if (std::ranges::any_of(vertices, [&](int vertex) { return topology.vertex(vertex).node != node; })) return {};
  std::vector<int> nics;
  for (const int nic : topology.of_kind(VertexKind::nic))
    if (topology.vertex(nic).node == node) nics.push_back(nic);
  return nics;
}

// The best chain so far, and the search for better ones.
class Improvement {
 public:
  // vertices: those of the GPUs, in the same order. root: as in Search.
  Improvement(const Topology& topology, std::span<const int> gpus, const std::vector<int>& vertices, int root)
      : topology_(topology),
        gpus_(gpus),
        vertices_(vertices),
        routes_(topology),
        search_(topology, routes_, vertices, root) {}

  // The first order that any load permits; its ends at these NICs, if it can have them there.
  Status find_any(const std::vector<int>& nics, std::int64_t steps);
  // Orders of lower and lower loads, in so many steps.
  void lower_load(std::int64_t steps);
  // Orders of the same load, with wider links.
  void widen();
  [[nodiscard]] Chain best() && { return std::move(best_); }

 private:
  void keep();

  const Topology& topology_;
  std::span<const int> gpus_;
  const std::vector<int>& vertices_;
  const ShortestRoutes routes_;
  Search search_;
  Chain best_;
};

void Improvement::keep() {
  Chain chain{.entry = search_.entry(), .exit = search_.exit()};
  for (const int place : search_.order()) chain.order.push_back(gpus_[at(place)]);
  chain.max_link_load = largest(loads(topology_, routes_, chain));
  chain.width = narrowest(topology_, routes_, chain.order);
  chain.least_possible = best_.least_possible;
  const bool better = best_.order.empty() || chain.max_link_load < best_.max_link_load ||
                      (chain.max_link_load == best_.max_link_load && chain.width > best_.width);
  if (better) best_ = std::move(chain);
}

Status Improvement::find_any(const std::vector<int>& nics, std::int64_t steps) {
  const auto any = [&] {
    std::int64_t some = steps;
    return search_.run(static_cast<int>(gpus_.size()) + 1, 0, some);
  };
  const bool has_ends = search_.set_ends(nics);
  auto outcome = any();
  if (outcome != Search::Outcome::found && has_ends) {
    search_.set_ends({});
    outcome = any();
  }
  if (outcome != Search::Outcome::found)
    return Status(Code::unsupported, outcome == Search::Outcome::impossible
                                         ? "no chain passes all of these GPUs, for GPUs do not relay"
                                         : fmt::format("no chain was found in {} steps", steps));
  keep();
  return {};
}

void Improvement::lower_load(std::int64_t steps) {
  bool proved = true;  // so far every lower load is impossible
  best_.least_possible = std::min(best_.max_link_load, 1);
  for (int load = 1; load < best_.max_link_load; ++load) {
    const auto outcome = search_.run(load, 0, steps);
    if (outcome == Search::Outcome::found) keep();
    proved = proved && outcome == Search::Outcome::impossible;
    if (proved) best_.least_possible = load + 1;
  }
}

// An order of wide links is one of narrower links too: the widest is between one that is found and one that is not.
// Where the steps run out it is taken for none.
void Improvement::widen() {
  std::set<double> widths;
  for (const int from : vertices_)
    for (const int to : vertices_)
      if (from != to && routes_.width(from, to) > best_.width) widths.insert(routes_.width(from, to));
  std::vector<double> wider(widths.begin(), widths.end());
  while (!wider.empty()) {
    const auto middle = wider.begin() + std::ssize(wider) / 2;
    std::int64_t some = 100'000;
    if (search_.run(best_.max_link_load, *middle, some) == Search::Outcome::found) {
      keep();
      wider.erase(wider.begin(), std::ranges::upper_bound(wider, best_.width));
    } else {
      wider.erase(middle, wider.end());
    }
  }
}

}  // namespace

Result<Chain> least_loaded_chain(const Topology& topology, std::span<const int> gpus, std::optional<int> root,
                                 std::int64_t steps) {
  const auto selected = select(topology, gpus);  // for its errors
  PACE_TRY(selected.status());
  const auto first = root ? std::find(gpus.begin(), gpus.end(), *root) : gpus.end();
  if (root && first == gpus.end()) return wrong(fmt::format("the root, GPU {}, is none of the chain's", *root));
  std::vector<int> vertices;
  for (const int gpu : gpus) vertices.push_back(topology.gpus()[at(gpu)]);
  std::vector<int> nics;
  if (!root) nics = different(topology, nics_of_one_node(topology, vertices));
  Improvement chain(topology, gpus, vertices, root ? static_cast<int>(first - gpus.begin()) : -1);
  PACE_TRY(chain.find_any(nics, steps));
  chain.lower_load(steps);
  chain.widen();
  return std::move(chain).best();
}

}  // namespace paceline
