// The ways that messages between GPUs take through a topology, found one pair at a time: clusters of thousands of GPUs
// have too many pairs for a table.
//
// A way has the fewest links; of several such the one whose narrowest link is widest. Within a node GPUs do not relay.
// Where an NVSwitch joins nodes, its GPUs send to each other over NVLink. To any other node a message leaves through
// the NIC nearest to its GPU and enters through the NIC nearest to the other one; where several are as near, the
// node's GPUs that have this choice take one each in turn, as the rails of a cluster are used. Of equal ways through
// the switches each NIC that a switch has gets its messages over the next one, whoever sends them, as fat trees route
// (D-mod-K).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "topology/graph.h"

namespace paceline {

// Links, in order, and which part of a message's bytes goes over them.
struct WayPart {
  std::vector<int> links;
  double part = 1;
};

class WayFinder {
 public:
  // The topology must outlive it.
  explicit WayFinder(const Topology& topology);
  WayFinder(WayFinder&&) noexcept;
  ~WayFinder();

  [[nodiscard]] const Topology& topology() const { return topology_; }

  // The ways of a message from one GPU to another; the parts add up to 1. Empty where there is none, and on one GPU.
  const std::vector<WayPart>& between(int from, int to);
  // Instead of what would be found.
  void set(int from, int to, std::vector<WayPart> ways);

  // From now on, equal links of different parts of a cluster are one link: the first part's. For symmetric traffic, of
  // which one part's is enough. A part is a node, or where there are several network switches, a leaf switch with its
  // nodes; links are taken in the order in which cluster() makes them. Returns the number of GPUs of a part; 0, and
  // nothing changes, unless the parts are equal and meet at network switches, and at most at one NVSwitch.
  int fold();

 private:
  class Search;
  const Topology& topology_;
  std::unique_ptr<Search> search_;
  std::vector<int> same_as_;  // by link, after fold()
  std::unordered_map<std::uint64_t, std::vector<WayPart>> known_;
};

}  // namespace paceline
