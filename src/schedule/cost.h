// The cost of an algorithm: what it asks of its ranks (load.h), and the constants that turn it into a time.
//
// The published formulas have one rate B and full-duplex links. Inside a node the ranks' CPUs are the links: sending is
// a copy, taking another, and where ranks share CPUs all of them add up. So a cost formula here says how many bytes the
// busiest rank and the mean rank send, take and fold; with duplex = 1 and sharing = 1 the published formula comes out.
//
// Where ranks share nodes, a node's ranks share the cable between it and the others: a formula says as well how many
// bytes pass the busiest cable (schedule/cables.h), and how many of its hops stay inside a node.
//
// Times in microseconds, sizes in bytes, rates in bytes per microsecond (1 GB/s = 1000 bytes/us).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include "schedule/load.h"

namespace paceline {

class Paths;

// The defaults are for shared memory: those by which the choice came nearest to the fastest on 2 to 16 CPUs of three
// machines (tests/python/test_untuned_choice.py).
struct CostModel {
  static constexpr double at_once = 1e15;  // a rate

  double call = 0;                  // a call, beside its messages: ranks do not enter it together, for instance
  double start = 0.75;              // t_s: one message from one rank to the next, without its bytes
  double chunk_start = 0.22;        // one more chunk through a pipeline: t_s where each waits for the one before
  double step = 0.015;              // what one more step costs the rank that takes it
  double partner = 0.27;            // one more rank to take a message from, whose mailbox another CPU has just written
  double board = 0.17;              // one more rank to take a message from that it has written once, for all to read
  double receiver = 0.2;            // one more rank to give a message to, whose mailbox another CPU has just read
  double bandwidth = 12500;         // B: bytes per us that one rank moves to another
  double reduce_bandwidth = 22000;  // bytes per us that one rank folds into its own
  double write_bandwidth = 75000;   // bytes per us of folds' results
  double copy_bandwidth = 30000;    // bytes per us of a local copy
  double duplex = 0;                // how much of a rank's taking goes on beside its sending: 1 where links carry both
                                    // ways at once, 0 where the rank's CPU copies both
  double sharing = 1;               // ranks that take turns on one CPU
  double switching = 0;             // us for a turn of the others, waited for at each dependent step when sharing > 1
  double multicast_share = 0;   // what each further receiver of one message costs its sender, as a share of the first:
                                // 0 in shared memory, 1 over TCP
  double common_share = 0.9;    // what a byte that several ranks read where it is costs each of them beside, as a share
                                // of one that moves from one to another; 0 over TCP
  double passing_share = 0.53;  // what passing a message on costs, as a share of sending it: 1 over TCP
  int homes = 0;                // ranks so many apart share a CPU; 0: others do, or none
  double beside_share = 0;      // what sending to one of these costs, as a share of sending to another
  int node_ranks = 1;           // ranks of each node; 1 where nodes do not matter or are not alike
  std::vector<int> order = {};  // the ranks, one node after another; empty: they are so by their numbers
  double node_start = 0.5;      // `start` of a message between two ranks of a node, where there are several
  double cable = at_once;   // bytes per us that all ranks of a node together send to the other nodes, where there are
                            // several ranks; as many come the other way
  double stream = at_once;  // bytes per us of them that one rank sends
  std::size_t element = 4;  // bytes of one element of the problem
  std::size_t largest_chunk = 128 << 10;   // bytes that one message may carry on this communicator
  std::shared_ptr<Paths> paths = nullptr;  // of the ranks' topology; nullptr: none is known

  // passing_share where ranks share CPUs, so many each. Two on one are as far apart as there are CPUs, so that what is
  // passed on goes over to another; more are neighbours, and it mostly stays (home_of() in comm/communicator.cc).
  [[nodiscard]] static double passing_share_of(double sharing) { return sharing <= 2 ? 1 : 0; }
  // Whether the ranks have a CPU each and read a message for several where it is written once.
  [[nodiscard]] bool all_in_shared_memory() const { return multicast_share < 0.5 && node_ranks == 1 && sharing <= 1; }

  // What a rank sends so that each of its receivers has so many bytes.
  [[nodiscard]] double multicast(double bytes, int receivers) const {
    return receivers < 1 ? 0 : bytes * (1 + (receivers - 1) * multicast_share);
  }
  // Of a message's receivers those beside the first, if each is given it; in shared memory all ranks read it where it
  // is written once.
  [[nodiscard]] double further(int receivers, int ranks) const {
    return receivers < 2 ? 0 : (receivers - 1) * (receivers == ranks - 1 ? multicast_share : 1);
  }
  // What a rank receives of messages that go to so many ranks, or are passed on (Load::common).
  [[nodiscard]] static double common(double bytes, int receivers) { return receivers > 1 ? bytes : 0; }
  // Bytes that a rank sends, as far as they cost it anything.
  [[nodiscard]] double sending(const Load& load) const {
    return load.sent - (1 - passing_share) * load.passed - (1 - beside_share) * load.beside;
  }
  // Whether ranks so far apart are at home on one CPU.
  [[nodiscard]] bool share_a_home(int distance) const { return homes > 0 && distance % homes == 0; }
  // A rank's work, without waiting for others.
  [[nodiscard]] double time(const Load& load) const {
    const double sent = sending(load);
    const double both_ways = std::max(sent, load.taken) + (1 - duplex) * std::min(sent, load.taken);
    return load.steps * step + load.receivers * receiver + both_ways / bandwidth + load.folded / reduce_bandwidth +
           load.written / write_bandwidth + load.copied / copy_bandwidth + load.common * common_share / bandwidth;
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
  // The busiest rank ends last, unless CPUs that ranks share do, which have the work of all ranks, or cables.
  [[nodiscard]] double time(const Work& work) const {
    const double inside = node_ranks > 1 ? work.inside : 0;
    return call + (work.hops - inside) * start + inside * node_start + work.turns * switching +
           work.partners * partner + work.boards * board + time(work.fill) +
           std::max({time(work.busiest), sharing * time(work.mean), work.cable.node / cable, work.cable.rank / stream});
  }

  // Of the levels at which ranks 1, radix, radix^2, ... apart exchange, those inside a node.
  [[nodiscard]] int levels_inside(int ranks, int radix = 2) const {
    int levels = 0;
    for (int width = radix; width / radix < ranks && width <= node_ranks; width *= radix) ++levels;
    return levels;
  }
  // Of so many hops from each rank to the next, those inside a node.
  [[nodiscard]] double hops_inside(double hops) const { return hops - std::floor(hops / node_ranks); }
  // What leaves a node whose ranks send so much to each other rank; and one of which a single rank sends it all.
  [[nodiscard]] Crossing to_all_others(double bytes, int ranks) const {
    const double each = (ranks - node_ranks) * bytes;
    return {node_ranks * each, each};
  }
  [[nodiscard]] static Crossing by_one_rank(double bytes) { return {bytes, bytes}; }
};

}  // namespace paceline
