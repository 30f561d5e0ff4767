#include "topology/max_flow.h"

#include <algorithm>

#include "base/index.h"

namespace paceline {

int FlowNetwork::add_vertex() {
  leaving_.emplace_back();
  return vertices() - 1;
}

int FlowNetwork::add_edge(int from, int to, Flow capacity) {
  const int edge = static_cast<int>(capacity_.size());
  capacity_.push_back(capacity);
  arcs_.push_back({to, 0});
  arcs_.push_back({from, 0});
  leaving_[at(from)].push_back(2 * edge);
  leaving_[at(to)].push_back(2 * edge + 1);
  return edge;
}

Flow FlowNetwork::max_flow(int source, int sink, Flow enough) {
  for (std::size_t e = 0; e < capacity_.size(); ++e) {
    arcs_[2 * e].left = capacity_[e];
    arcs_[2 * e + 1].left = 0;
  }
  Flow flow = 0;
  while (flow < enough && level(source, sink)) {
    next_.assign(leaving_.size(), 0);
    while (flow < enough) {
      const Flow more = push(source, sink, enough - flow);
      if (more == 0) break;
      flow += more;
    }
  }
  return flow;
}

bool FlowNetwork::level(int source, int sink) {
  level_.assign(leaving_.size(), -1);
  level_[at(source)] = 0;
  std::vector<int> open{source};
  for (std::size_t i = 0; i < open.size(); ++i) {
    for (const int a : leaving_[at(open[i])]) {
      const Arc& arc = arcs_[at(a)];
      if (arc.left == 0 || level_[at(arc.to)] >= 0) continue;
      level_[at(arc.to)] = level_[at(open[i])] + 1;
      if (arc.to == sink) return true;
      open.push_back(arc.to);
    }
  }
  return false;
}

// Along one path; a loop, for a path may have more vertices than a stack has room.
Flow FlowNetwork::push(int source, int sink, Flow most) {
  path_.clear();
  for (int here = source; here != sink;) {
    std::size_t& i = next_[at(here)];
    if (i == leaving_[at(here)].size()) {
      if (path_.empty()) return 0;
      here = arcs_[at(path_.back() ^ 1)].to;
      path_.pop_back();
      ++next_[at(here)];
      continue;
    }
    const int a = leaving_[at(here)][i];
    const int to = arcs_[at(a)].to;
    if (arcs_[at(a)].left == 0 || level_[at(to)] != level_[at(here)] + 1) {
      ++i;
      continue;
    }
    path_.push_back(a);
    here = to;
  }
  for (const int a : path_) most = std::min(most, arcs_[at(a)].left);
  for (const int a : path_) {
    arcs_[at(a)].left -= most;
    arcs_[at(a ^ 1)].left += most;
  }
  return most;
}

std::vector<bool> FlowNetwork::source_side(int source) const {
  std::vector<bool> side(leaving_.size());
  side[at(source)] = true;
  std::vector<int> open{source};
  while (!open.empty()) {
    const int here = open.back();
    open.pop_back();
    for (const int a : leaving_[at(here)]) {
      const Arc& arc = arcs_[at(a)];
      if (arc.left == 0 || side[at(arc.to)]) continue;
      side[at(arc.to)] = true;
      open.push_back(arc.to);
    }
  }
  return side;
}

}  // namespace paceline
