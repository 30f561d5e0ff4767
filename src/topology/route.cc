#include "topology/route.h"

#include <algorithm>
#include <limits>

namespace paceline {

ShortestRoutes::ShortestRoutes(const Topology& topology) : topology_(topology), from_(topology.vertices().size()) {
  const auto leaving = topology.leaving();
  for (std::size_t start = 0; start < from_.size(); ++start) {
    const VertexKind kind = topology.vertices()[start].kind;
    if (kind != VertexKind::gpu && kind != VertexKind::nic) continue;
    auto& reached = from_[start];
    reached.resize(from_.size());
    reached[start] = {-1, 0, std::numeric_limits<double>::infinity()};
    std::vector<int> ring{static_cast<int>(start)};
    for (int hops = 1; !ring.empty(); ++hops) {  // all vertices so many links away
      std::vector<int> next;
      for (const int at : ring) {
        if (at != static_cast<int>(start) && topology.vertex(at).kind == VertexKind::gpu) continue;
        for (const int l : leaving[static_cast<std::size_t>(at)]) {
          const Link& link = topology.link(l);
          Reached& to = reached[static_cast<std::size_t>(link.to)];
          const double width = std::min(reached[static_cast<std::size_t>(at)].width, link.bandwidth);
          if (to.hops < 0) next.push_back(link.to);
          if (to.hops < 0 || (to.hops == hops && (width > to.width || (width == to.width && l < to.by))))
            to = {l, hops, width};
        }
      }
      ring = std::move(next);
    }
  }
}

const ShortestRoutes::Reached& ShortestRoutes::reached(int from, int to) const {
  return from_[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)];
}

std::vector<int> ShortestRoutes::between(int from, int to) const {
  std::vector<int> links;
  if (reached(from, to).hops < 0) return links;
  for (int at = to; at != from; at = topology_.link(links.back()).from) links.push_back(reached(from, at).by);
  std::reverse(links.begin(), links.end());
  return links;
}

double ShortestRoutes::width(int from, int to) const {
  return reached(from, to).hops < 0 ? 0 : reached(from, to).width;
}

}  // namespace paceline
