// The way that a message takes from one vertex to another.
#pragma once

#include <vector>

#include "topology/graph.h"

namespace paceline {

// Ways between the GPUs and NICs of one topology, found when they are asked for, by one thread. A way has the fewest
// links; of several such the one whose narrowest link is widest; of those the one whose links were added first. GPUs do
// not relay.
class ShortestRoutes {
 public:
  explicit ShortestRoutes(const Topology& topology);
  // The links from one vertex to another, in order; empty if there is no way or they are the same.
  [[nodiscard]] std::vector<int> between(int from, int to) const;
  // GB/s of the narrowest of them; 0 if there is no way.
  [[nodiscard]] double width(int from, int to) const;

 private:
  struct Reached {
    int by = -1;  // the last link
    int hops = -1;
    double width = 0;
  };
  [[nodiscard]] const Reached& reached(int from, int to) const;
  [[nodiscard]] std::vector<Reached> search(int start) const;

  const Topology& topology_;
  std::vector<std::vector<int>> leaving_;
  // By vertex; empty until asked for: on a large cluster all of them would fill the memory.
  mutable std::vector<std::vector<Reached>> from_;
};

}  // namespace paceline
