// The cost of a schedule: what an algorithm asks of its ranks, and the constants that turn it into a time.
//
// The published formulas have one rate B and full-duplex links. Inside a node the ranks' CPUs are the links: sending is
// a copy, taking another, and where ranks share CPUs all of them add up. So a cost formula here says how many bytes the
// busiest rank and the mean rank send, take and fold; with duplex = 1 and sharing = 1 the published formula comes out.
//
// Times in microseconds, sizes in bytes, rates in bytes per microsecond (1 GB/s = 1000 bytes/us).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace paceline {

// What one rank does: steps, and bytes.
struct Load {
  double steps = 0;
  double sent = 0;
  double taken = 0;   // received, and not folded
  double folded = 0;  // received and folded into the rank's own data
  double copied = 0;  // from one of its buffers to another

  friend Load operator+(const Load& a, const Load& b) {
    return {a.steps + b.steps, a.sent + b.sent, a.taken + b.taken, a.folded + b.folded, a.copied + b.copied};
  }
  friend Load operator*(double factor, const Load& a) {
    return {factor * a.steps, factor * a.sent, factor * a.taken, factor * a.folded, factor * a.copied};
  }
};

// What an algorithm asks of its ranks.
struct Work {
  double hops = 0;   // messages of which each waits for the one before, on the longest path
  double turns = 0;  // how often a rank waits for others
  Load fill;         // work on the longest path that nothing overlaps: the filling of a pipeline
  Load busiest;      // of all ranks
  Load mean;         // of all ranks
};

struct CostModel {
  double start = 0.5;              // t_s: one message from one rank to the next, without its bytes
  double step = 0.05;              // what one more step costs the rank that takes it
  double bandwidth = 10000;        // B: bytes per us that one rank moves to another
  double reduce_bandwidth = 8000;  // bytes per us that one rank folds into its own
  double copy_bandwidth = 10000;   // bytes per us of a local copy
  double duplex = 0;               // how much of a rank's taking goes on beside its sending: 1 where links carry both
                                   // ways at once, 0 where the rank's CPU copies both
  double sharing = 1;              // ranks that take turns on one CPU
  double switching = 0;            // us for a turn of the others, waited for at each dependent step when sharing > 1
  double multicast_share = 0;  // what each further receiver of one message costs its sender, as a share of the first:
                               // 0 in shared memory, 1 over TCP
  int node_ranks = 1;       // ranks of each node, one node after another; 1 where nodes do not matter or are not alike
  std::size_t element = 4;  // bytes of one element of the problem
  std::size_t largest_chunk = 128 << 10;  // bytes that one message may carry on this communicator

  // What a rank sends so that each of its receivers has so many bytes.
  [[nodiscard]] double multicast(double bytes, int receivers) const {
    return receivers < 1 ? 0 : bytes * (1 + (receivers - 1) * multicast_share);
  }
  // A rank's work, without waiting for others.
  [[nodiscard]] double time(const Load& load) const {
    const double both_ways = std::max(load.sent, load.taken) + (1 - duplex) * std::min(load.sent, load.taken);
    return load.steps * step + both_ways / bandwidth + load.folded / reduce_bandwidth + load.copied / copy_bandwidth;
  }
  [[nodiscard]] const Load& busier(const Load& a, const Load& b) const { return time(a) < time(b) ? b : a; }
  // The busiest and the mean of all ranks' loads.
  [[nodiscard]] Work work(const std::vector<Load>& loads) const {
    Work work;
    for (const Load& load : loads) {
      work.busiest = busier(work.busiest, load);
      work.mean = work.mean + 1.0 / static_cast<double>(loads.size()) * load;
    }
    return work;
  }
  // The busiest rank ends last, unless CPUs that ranks share do: they have the work of all ranks.
  [[nodiscard]] double time(const Work& work) const {
    return work.hops * start + work.turns * switching + time(work.fill) +
           std::max(time(work.busiest), sharing * time(work.mean));
  }
};

}  // namespace paceline
