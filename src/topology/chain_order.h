// The order of a pipelined chain that suits the topology.
//
// In a chain every GPU sends the whole stream to the next one. Where two of these hops share a directed link, it must
// carry the stream twice, and the chain goes at half its rate. So the order is wanted whose most loaded directed link
// is least loaded. Within a node that has NICs the stream comes in through one and goes out through one, and these two
// ways count as well. In a full-duplex tree every depth-first order of the leaves has load 1.
//
// The search asks for load 1, then 2, and so on: it extends the chain by the nearest GPU first and turns back where a
// link would carry too much. What it went through without finding an order is proved impossible; on nodes of up to 8 to
// 16 GPUs that is everything. Beyond its budget of steps it keeps the best order that it has, and says what is proved.
// Of the orders with the least load it prefers wide links.
//
// An order is a path and no cycle: its last GPU need not have a way to its first. A broadcast that begins at another
// GPU than the first needs an order of its own, which is searched with that GPU as the first.
//
// Source: Awan et al., Parallel Computing 85 (2019): TA-PC.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "topology/graph.h"

namespace paceline {

struct Chain {
  std::vector<int> order = {};  // GPUs
  int entry = -1;               // vertex of the NIC through which the stream comes in, and the next out; -1: none
  int exit = -1;
  int max_link_load = 0;   // streams on the most loaded directed link
  int least_possible = 0;  // no order has a lower load than this; equal to max_link_load: the order is the best
  double width = 0;        // GB/s of the narrowest link between two GPUs of the chain; 0 with one GPU
};

// The least loaded chain through these GPUs of a valid topology, by the ways of ShortestRoutes (route.h). If they are
// of one node and a chain can come in and go out through its NICs, it has entry and exit. With `root`, one of them, the
// chain begins there, and the stream neither comes in nor goes out. `steps` limits the search for an order, and that
// for a lower load (about 10^7 a second); wider links are looked for in fewer.
// Errors: invalid_argument for no GPU, an unknown number, one twice, a root that is none of them; unsupported for GPUs
// that no chain can pass (GPUs do not relay), and where none was found in these steps.
Result<Chain> least_loaded_chain(const Topology& topology, std::span<const int> gpus, std::optional<int> root = {},
                                 std::int64_t steps = 4'000'000);

}  // namespace paceline
