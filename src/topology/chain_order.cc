#include "topology/chain_order.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/index.h"
#include "base/wrong.h"
#include "topology/route.h"

namespace paceline {
namespace {

// Backtracking over orders with a limit on every link's load.
class Search {
 public:
  // `root`: the place in `gpus` that comes first; -1: any.
  Search(const Topology& topology, const ShortestRoutes& routes, const std::vector<int>& gpus, int entry, int exit,
         int root);

  enum class Outcome { found, impossible, gave_up };
  // An order that loads no link more than `load` and has links of at least `width` GB/s between its GPUs.
  Outcome run(int load, double width, std::int64_t& steps);
  [[nodiscard]] const std::vector<int>& order() const { return order_; }  // by place in `gpus`

 private:
  struct Hop {
    int to = 0;  // place in `gpus`
    double width = 0;
    std::vector<int> links;
  };
  Outcome extend(const std::vector<Hop>& hops, std::int64_t& steps);
  [[nodiscard]] bool take(const std::vector<int>& links);
  void release(const std::vector<int>& links, std::size_t count);

  int count_;
  bool leaves_;                         // through a NIC
  std::vector<Hop> first_;              // nearest first, as the next
  std::vector<std::vector<Hop>> next_;  // by place
  std::vector<std::vector<int>> last_;  // links to the exit, by place
  std::vector<int> load_;               // by link
  std::vector<bool> used_;              // by place
  std::vector<int> order_;
  int most_ = 0;
  double width_ = 0;
};

Search::Search(const Topology& topology, const ShortestRoutes& routes, const std::vector<int>& gpus, int entry,
               int exit, int root)
    : count_(static_cast<int>(gpus.size())),
      leaves_(exit >= 0),
      next_(gpus.size()),
      last_(gpus.size()),
      load_(topology.links().size()),
      used_(gpus.size()) {
  const auto hops_from = [&](int vertex) {
    std::vector<Hop> hops;
    for (int to = 0; to < count_; ++to)
      if (auto links = routes.between(vertex, gpus[at(to)]); !links.empty())
        hops.push_back({to, routes.width(vertex, gpus[at(to)]), std::move(links)});
    std::stable_sort(hops.begin(), hops.end(), [](const Hop& a, const Hop& b) {
      return a.links.size() != b.links.size() ? a.links.size() < b.links.size() : a.width > b.width;
    });
    return hops;
  };
  for (int i = 0; i < count_; ++i) {
    next_[at(i)] = hops_from(gpus[at(i)]);
    if (exit >= 0) last_[at(i)] = routes.between(gpus[at(i)], exit);
  }
  if (entry >= 0) {
    first_ = hops_from(entry);
  } else if (root >= 0) {
    first_ = {{root, 0, {}}};
  } else {
    for (int i = 0; i < count_; ++i) first_.push_back({i, 0, {}});
  }
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
  std::fill(load_.begin(), load_.end(), 0);
  std::fill(used_.begin(), used_.end(), false);
  order_.clear();
  return extend(first_, steps);
}

Search::Outcome Search::extend(const std::vector<Hop>& hops, std::int64_t& steps) {
  if (static_cast<int>(order_.size()) == count_) {
    if (!leaves_) return Outcome::found;
    const auto& links = last_[at(order_.back())];
    return !links.empty() && take(links) ? Outcome::found : Outcome::impossible;
  }
  for (const Hop& hop : hops) {
    if (used_[at(hop.to)] || (!order_.empty() && hop.width < width_)) continue;
    if (--steps < 0) return Outcome::gave_up;
    if (!take(hop.links)) continue;
    used_[at(hop.to)] = true;
    order_.push_back(hop.to);
    if (const Outcome outcome = extend(next_[at(hop.to)], steps); outcome != Outcome::impossible) return outcome;
    order_.pop_back();
    used_[at(hop.to)] = false;
    release(hop.links, hop.links.size());
  }
  return Outcome::impossible;
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

}  // namespace

std::vector<int> link_loads(const Topology& topology, const Chain& chain) {
  return loads(topology, ShortestRoutes(topology), chain);
}

Result<Chain> least_loaded_chain(const Topology& topology, std::span<const int> gpus, std::optional<int> root,
                                 std::int64_t steps) {
  const auto selected = select(topology, gpus);  // for its errors
  PACE_TRY(selected.status());
  const auto first = root ? std::find(gpus.begin(), gpus.end(), *root) : gpus.end();
  if (root && first == gpus.end()) return wrong(fmt::format("the root, GPU {}, is none of the chain's", *root));
  std::vector<int> vertices;
  std::set<int> nodes;
  for (const int gpu : gpus) {
    vertices.push_back(topology.gpus()[at(gpu)]);
    nodes.insert(topology.vertex(vertices.back()).node);
  }
  std::vector<int> nics;
  if (nodes.size() == 1 && !root)
    for (const int nic : topology.of_kind(VertexKind::nic))
      if (topology.vertex(nic).node == *nodes.begin()) nics.push_back(nic);
  std::vector<std::pair<int, int>> ends;
  for (const int entry : nics)
    for (const int exit : nics) ends.emplace_back(entry, exit);
  if (ends.empty()) ends.emplace_back(-1, -1);

  const int root_place = root ? static_cast<int>(first - gpus.begin()) : -1;
  const ShortestRoutes routes(topology);
  std::vector<Search> searches;
  std::set<double, std::greater<>> widths;
  searches.reserve(ends.size());
  for (const auto& [entry, exit] : ends) searches.emplace_back(topology, routes, vertices, entry, exit, root_place);
  for (const int from : vertices)
    for (const int to : vertices)
      if (from != to && routes.width(from, to) > 0) widths.insert(routes.width(from, to));

  // Whatever the steps allow: the first order that any load permits.
  const int any_load = static_cast<int>(gpus.size()) + 1;
  Chain best;
  const auto keep = [&](std::size_t which) {
    Chain chain{.entry = ends[which].first, .exit = ends[which].second};
    for (const int place : searches[which].order()) chain.order.push_back(gpus[at(place)]);
    chain.max_link_load = largest(loads(topology, routes, chain));
    chain.width = narrowest(topology, routes, chain.order);
    chain.least_possible = best.least_possible;
    const bool better = best.order.empty() || chain.max_link_load < best.max_link_load ||
                        (chain.max_link_load == best.max_link_load && chain.width > best.width);
    if (better) best = std::move(chain);
  };
  bool all_tried = true;
  for (std::size_t i = 0; i < searches.size(); ++i) {
    std::int64_t some = steps;
    const auto outcome = searches[i].run(any_load, 0, some);
    if (outcome == Search::Outcome::found) keep(i);
    all_tried = all_tried && outcome != Search::Outcome::gave_up;
  }
  if (best.order.empty())
    return Status(Code::unsupported, all_tried ? "no chain passes all of these GPUs, for GPUs do not relay"
                                               : fmt::format("no chain was found in {} steps", steps));

  bool proved = true;  // so far every lower load is impossible
  best.least_possible = std::min(best.max_link_load, 1);
  for (int load = 1; load < best.max_link_load; ++load) {
    bool found = false;
    for (std::size_t i = 0; i < searches.size() && !found; ++i) {
      const auto outcome = searches[i].run(load, 0, steps);
      found = outcome == Search::Outcome::found;
      if (found) keep(i);
      proved = proved && outcome != Search::Outcome::gave_up;
    }
    if (!found && proved) best.least_possible = load + 1;
  }
  for (const double width : widths) {
    if (width <= best.width) break;
    for (std::size_t i = 0; i < searches.size() && width > best.width; ++i) {
      std::int64_t some = 100'000;
      if (searches[i].run(best.max_link_load, width, some) == Search::Outcome::found) keep(i);
    }
  }
  return best;
}

}  // namespace paceline
