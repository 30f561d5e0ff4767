#include "topology/rings.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/index.h"
#include "topology/fractional_packing.h"
#include "topology/way_finder.h"

namespace paceline {
namespace {

// A ring that might be used: what it asks of the links.
struct Candidate {
  std::vector<int> order;  // GPUs
  LinkLoads load;          // how often it passes each link
};

// kB/s that rings cannot exceed: each crosses every cut, both ways, and makes an all-gather.
Flow most_of_rings(const Topology& topology) {
  const Bounds bounds = throughput_bounds(topology);
  return std::min(bounds.broadcast.numerator / bounds.broadcast.denominator,
                  bounds.all_gather.numerator / bounds.all_gather.denominator);
}

class Search {
 public:
  // With lanes of 1/`parts` of what divides all bandwidths.
  Search(const Topology& topology, int parts, std::int64_t steps);
  RingPacking run();

 private:
  void list_rotated();
  [[nodiscard]] std::vector<int> ring_within(const std::vector<int>& gpus);
  bool close(std::vector<int>& order, std::vector<bool>& open, std::size_t count, double width);
  void list_all();
  void list(std::vector<int>& order, std::vector<bool>& used, double width);
  void add(const std::vector<int>& order);
  [[nodiscard]] Flow most(const Candidate& ring) const;
  [[nodiscard]] Flow bound() const;
  [[nodiscard]] bool reaches_all_parts() const;
  [[nodiscard]] bool has_other_ways() const;
  void combine_all(bool undivided, RingPacking& packing);
  void combine(std::size_t next, Flow lanes);
  void use(const Candidate& ring, Flow lanes);

  const Topology& topology_;
  int count_;
  std::int64_t steps_;
  bool complete_ = true;
  bool too_thin_ = false;                            // some ring has less than a lane
  bool undivided_ = false;                           // a ring has all that is left for it, or nothing
  std::vector<std::vector<std::vector<int>>> ways_;  // links between two GPUs
  std::vector<std::vector<double>> widths_;
  std::vector<std::vector<int>> nearest_;  // to each GPU
  Flow lane_ = 0;                          // kB/s
  std::vector<Flow> left_;                 // lanes, by link
  std::vector<std::vector<int>> leaving_;  // links of ways, by GPU
  std::vector<std::vector<int>> coming_;
  std::vector<Candidate> rings_;
  std::set<std::vector<int>> listed_;
  Flow ceiling_ = 0;  // lanes that no combination exceeds
  Flow best_ = 0;
  std::vector<Flow> chosen_;  // lanes of each ring
  std::vector<Flow> best_chosen_;
};

Search::Search(const Topology& topology, int parts, std::int64_t steps)
    : topology_(topology),
      count_(static_cast<int>(topology.gpus().size())),
      steps_(steps),
      ways_(at(count_), std::vector<std::vector<int>>(at(count_))),
      widths_(at(count_), std::vector<double>(at(count_))),
      nearest_(at(count_)),
      left_(topology.links().size()),
      leaving_(at(count_)),
      coming_(at(count_)) {
  WayFinder finder(topology);
  std::vector<bool> used(topology.links().size());
  std::vector<int> gpu_of(topology.vertices().size(), -1);
  for (int a = 0; a < count_; ++a) {
    gpu_of[at(topology.gpus()[at(a)])] = a;
    for (int b = 0; b < count_; ++b) {
      if (a == b) continue;
      auto& way = ways_[at(a)][at(b)];
      for (const WayPart& part : finder.between(a, b)) way = part.links;  // there is one at most
      if (way.empty()) continue;
      nearest_[at(a)].push_back(b);
      double& width = widths_[at(a)][at(b)] = std::numeric_limits<double>::infinity();
      for (const int link : way) {
        width = std::min(width, topology.link(link).bandwidth);
        used[at(link)] = true;
      }
    }
    std::stable_sort(nearest_[at(a)].begin(), nearest_[at(a)].end(), [&](int b, int c) {
      const std::size_t to_b = ways_[at(a)][at(b)].size();
      const std::size_t to_c = ways_[at(a)][at(c)].size();
      return to_b != to_c ? to_b < to_c : widths_[at(a)][at(b)] > widths_[at(a)][at(c)];
    });
  }
  for (std::size_t l = 0; l < used.size(); ++l) {
    if (!used[l]) continue;
    const Link& link = topology.links()[l];
    lane_ = std::gcd(lane_, units(link.bandwidth));
    if (gpu_of[at(link.from)] >= 0) leaving_[at(gpu_of[at(link.from)])].push_back(static_cast<int>(l));
    if (gpu_of[at(link.to)] >= 0) coming_[at(gpu_of[at(link.to)])].push_back(static_cast<int>(l));
  }
  lane_ = lane_ % parts == 0 ? lane_ / parts : lane_;
  for (std::size_t l = 0; l < used.size(); ++l)
    if (used[l]) left_[l] = units(topology.links()[l].bandwidth) / lane_;
}

// In a cluster, rings that go once around the nodes and leave each by another GPU: a node's GPUs in the order of a ring
// within it, begun at each of them in turn, and the same the other way round.
void Search::list_rotated() {
  std::map<int, std::vector<int>> nodes;
  for (int gpu = 0; gpu < count_; ++gpu) nodes[topology_.vertex(topology_.gpus()[at(gpu)]).node].push_back(gpu);
  if (nodes.size() < 2) return;
  std::size_t longest = 0;
  for (auto& [node, gpus] : nodes) {
    gpus = ring_within(gpus);
    longest = std::max(longest, gpus.size());
  }
  for (const bool backwards : {false, true}) {
    for (std::size_t first = 0; first < longest; ++first) {
      std::vector<int> order;
      for (const auto& [node, gpus] : nodes) {
        for (std::size_t i = 0; i < gpus.size(); ++i) {
          const std::size_t place = (first + i) % gpus.size();
          order.push_back(gpus[backwards ? gpus.size() - 1 - place : place]);
        }
      }
      std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
      add(order);
    }
  }
}

// As wide as one is found in few steps; as the GPUs are numbered where none is.
std::vector<int> Search::ring_within(const std::vector<int>& gpus) {
  std::set<double, std::greater<>> widths;
  for (const int a : gpus)
    for (const int b : gpus) widths.insert(widths_[at(a)][at(b)]);
  widths.erase(0);
  for (const double width : widths) {
    steps_ = 10'000;
    std::vector<int> order{gpus.front()};
    std::vector<bool> open(at(count_));
    for (const int gpu : gpus) open[at(gpu)] = gpu != gpus.front();
    if (close(order, open, gpus.size(), width)) return order;
  }
  return gpus;
}

// Whether `order` goes on, through all open GPUs, to a ring of so many whose hops are at least so wide.
bool Search::close(std::vector<int>& order, std::vector<bool>& open, std::size_t count, double width) {
  if (order.size() == count) return widths_[at(order.back())][at(order.front())] >= width;
  for (const int next : nearest_[at(order.back())]) {
    if (!open[at(next)] || widths_[at(order.back())][at(next)] < width || --steps_ < 0) continue;
    open[at(next)] = false;
    order.push_back(next);
    if (close(order, open, count, width)) return true;
    order.pop_back();
    open[at(next)] = true;
  }
  return false;
}

// All rings whose hops are at least so wide, from GPU 0 on.
void Search::list(std::vector<int>& order, std::vector<bool>& used, double width) {
  constexpr std::size_t most_rings = 20'000;
  if (static_cast<int>(order.size()) == count_) {
    if (widths_[at(order.back())][0] >= width) add(order);
    return;
  }
  for (const int next : nearest_[at(order.back())]) {
    if (used[at(next)] || widths_[at(order.back())][at(next)] < width) continue;
    if (rings_.size() >= most_rings || --steps_ < 0) {
      complete_ = false;
      return;
    }
    used[at(next)] = true;
    order.push_back(next);
    list(order, used, width);
    order.pop_back();
    used[at(next)] = false;
  }
}

void Search::add(const std::vector<int>& order) {
  if (!listed_.insert(order).second) return;
  std::map<int, Flow> load;
  for (int i = 0; i < count_; ++i) {
    const auto& way = ways_[at(order[at(i)])][at(order[at((i + 1) % count_)])];
    if (way.empty()) return;
    for (const int link : way) ++load[link];
  }
  Candidate ring{order, {load.begin(), load.end()}};
  if (most(ring) > 0)
    rings_.push_back(std::move(ring));
  else
    too_thin_ = true;
}

// Lanes that the ring can have of what is left.
Flow Search::most(const Candidate& ring) const {
  Flow lanes = unlimited;
  for (const auto& [link, load] : ring.load) lanes = std::min(lanes, left_[at(link)] / load);
  return lanes;
}

// Each ring leaves every GPU once and comes to it once.
Flow Search::bound() const {
  Flow least = unlimited;
  for (const auto* side : {&leaving_, &coming_}) {
    for (const auto& links : *side) {
      Flow sum = 0;
      for (const int link : links) sum += left_[at(link)];
      least = std::min(least, sum);
    }
  }
  return least;
}

// Whether no parts of lanes of the listed rings are together more than the best.
bool Search::reaches_all_parts() const {
  std::vector<LinkLoads> loads;
  for (const Candidate& ring : rings_) loads.push_back(ring.load);
  return static_cast<double>(best_) >= fractional_packing(loads, left_) * (1 - 1e-9);
}

// Whether some GPU reaches another one without a link of the way between them.
bool Search::has_other_ways() const {
  const auto leaving = topology_.leaving();
  const auto reaches = [&](int from, int to, int without) {
    std::vector<bool> seen(topology_.vertices().size());
    std::vector<int> open{from};
    seen[at(from)] = true;
    while (!open.empty()) {
      const int here = open.back();
      open.pop_back();
      if (here == to) return true;
      if (here != from && topology_.vertex(here).kind == VertexKind::gpu) continue;  // GPUs do not relay
      for (const int link : leaving[at(here)]) {
        const int next = topology_.link(link).to;
        if (link == without || seen[at(next)]) continue;
        seen[at(next)] = true;
        open.push_back(next);
      }
    }
    return false;
  };
  for (int a = 0; a < count_; ++a)
    for (const int b : nearest_[at(a)])
      for (const int link : ways_[at(a)][at(b)])
        if (reaches(topology_.gpus()[at(a)], topology_.gpus()[at(b)], link)) return true;
  return false;
}

void Search::use(const Candidate& ring, Flow lanes) {
  for (const auto& [link, load] : ring.load) left_[at(link)] -= lanes * load;
}

void Search::combine(std::size_t next, Flow lanes) {
  if (lanes > best_) {
    best_ = lanes;
    best_chosen_ = chosen_;
  }
  const Flow room = bound();
  for (std::size_t i = next; i < rings_.size() && best_ < ceiling_ && best_ < lanes + room; ++i) {
    if (--steps_ < 0) {
      complete_ = false;
      return;
    }
    const Flow widest = most(rings_[i]);
    // After the last ring nothing comes that could use what it leaves.
    const Flow least = undivided_ || i + 1 == rings_.size() ? widest : 1;
    for (Flow m = widest; m > 0 && m >= least && best_ < ceiling_; --m) {
      if (--steps_ < 0) {
        complete_ = false;
        return;
      }
      use(rings_[i], m);
      chosen_[i] = m;
      combine(i + 1, lanes + m);
      chosen_[i] = 0;
      use(rings_[i], -m);
    }
  }
}

// What is better than the packing becomes the packing.
void Search::combine_all(bool undivided, RingPacking& packing) {
  std::stable_sort(rings_.begin(), rings_.end(),
                   [&](const Candidate& a, const Candidate& b) { return most(a) > most(b); });
  undivided_ = undivided;
  chosen_.assign(rings_.size(), 0);
  combine(0, 0);
  if (best_ * lane_ == packing.rate) return;
  packing.rate = best_ * lane_;
  packing.rings.clear();
  for (std::size_t i = 0; i < best_chosen_.size(); ++i)
    if (best_chosen_[i] > 0) packing.rings.push_back({rings_[i].order, best_chosen_[i] * lane_});
  std::stable_sort(packing.rings.begin(), packing.rings.end(),
                   [](const Ring& a, const Ring& b) { return a.rate > b.rate; });
}

// Wide rings first, so that they are there if not all can be listed. With half of the steps.
void Search::list_all() {
  std::set<double, std::greater<>> widths;
  for (const auto& row : widths_) widths.insert(row.begin(), row.end());
  widths.erase(0);
  const std::int64_t share = steps_ / 2 / static_cast<std::int64_t>(widths.size());
  const std::int64_t rest = steps_ - share * static_cast<std::int64_t>(widths.size());
  for (const double width : widths) {
    steps_ = share;
    complete_ = true;  // the last width lists all again
    std::vector<int> order{0};
    std::vector<bool> used(at(count_));
    used[0] = true;
    list(order, used, width);
  }
  steps_ = rest;
}

RingPacking Search::run() {
  RingPacking packing;
  if (count_ < 2 || lane_ == 0) return packing;
  const Flow limit = most_of_rings(topology_);
  const Flow ceiling = std::min(bound() * lane_, limit);
  ceiling_ = ceiling / lane_;

  const std::int64_t steps = steps_;
  list_rotated();
  steps_ = steps / 10;
  combine_all(true, packing);
  bool all_listed = false;
  if (best_ < ceiling_) {
    steps_ = steps;
    list_all();
    all_listed = complete_;
    combine_all(false, packing);
  }
  const bool best_on_these_ways = packing.rate == ceiling || (all_listed && !too_thin_ && reaches_all_parts());
  // No way at all is no way of any kind.
  packing.exact = packing.rate == limit || (best_on_these_ways && (rings_.empty() || !has_other_ways()));
  return packing;
}

}  // namespace

RingPacking pack_rings(const Topology& topology, std::int64_t steps) {
  const Topology plain = with_one_nvswitch(topology);
  RingPacking whole = Search(plain, 1, steps).run();
  if (whole.exact) return whole;
  RingPacking halves = Search(plain, 2, steps).run();
  return halves.rate > whole.rate ? halves : whole;
}

}  // namespace paceline
