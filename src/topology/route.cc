#include "topology/route.h"

#include <algorithm>
#include <limits>

#include "base/index.h"

namespace paceline {

ShortestRoutes::ShortestRoutes(const Topology& topology)
    : topology_(topology), leaving_(topology.leaving()), from_(topology.vertices().size()) {}

std::vector<ShortestRoutes::Reached> ShortestRoutes::search(int start) const {
  std::vector<Reached> reached(topology_.vertices().size());
  reached[at(start)] = {-1, 0, std::numeric_limits<double>::infinity()};
  std::vector<int> ring{start};
  for (int hops = 1; !ring.empty(); ++hops) {  // all vertices so many links away
    std::vector<int> next;
    for (const int here : ring) {
      if (here != start && topology_.vertex(here).kind == VertexKind::gpu) continue;
      for (const int l : leaving_[at(here)]) {
        const Link& link = topology_.link(l);
        Reached& to = reached[at(link.to)];
        const double width = std::min(reached[at(here)].width, link.bandwidth);
        if (to.hops < 0) next.push_back(link.to);
        if (to.hops < 0 || (to.hops == hops && (width > to.width || (width == to.width && l < to.by))))
          to = {l, hops, width};
      }
    }
    ring = std::move(next);
  }
  return reached;
}

const ShortestRoutes::Reached& ShortestRoutes::reached(int from, int to) const {
  auto& known = from_[at(from)];
  if (known.empty()) known = search(from);
  return known[at(to)];
}

std::vector<int> ShortestRoutes::between(int from, int to) const {
  std::vector<int> links;
  if (reached(from, to).hops < 0) return links;
  for (int here = to; here != from; here = topology_.link(links.back()).from) links.push_back(reached(from, here).by);
  std::reverse(links.begin(), links.end());
  return links;
}

double ShortestRoutes::width(int from, int to) const {
  return reached(from, to).hops < 0 ? 0 : reached(from, to).width;
}

}  // namespace paceline
