// Edge-disjoint rings: the rates at which rings can run side by side.
//
// A ring visits every GPU once and comes back; it loads each link of its ways at its rate. Wanted are rings that share
// no bandwidth and together are as fast as possible. Rates are counted in lanes: the largest bandwidth that divides the
// bandwidth of all links between the GPUs' ways, such as one NVLink. Where each pair of GPUs has links of its own this
// is a packing of Hamiltonian cycles into a multigraph. Where whole lanes are not surely the best, halves are tried: of
// four GPUs with a link between each two, six rings have half a link each, and whole links make but two rings.
//
// The search lists the rings, widest first, and combines them with backtracking; what is left at the poorest GPU bounds
// what can still come. It ends when the bound is met or everything has been tried; beyond its budget of steps it keeps
// the best combination that it has. In a cluster it first combines rings that go once around the nodes and leave each
// by another GPU, so by all its NICs in turn; where these meet the bound it lists no others. Each hop takes one way, as
// messages do (way_finder.h). That nothing is faster is said where the rate is that of the narrowest cut or of the
// all-gather's bound, or, where no two GPUs have another way, the most that parts of all rings can have
// (fractional_packing.h).
#pragma once

#include <cstdint>
#include <vector>

#include "topology/bounds.h"
#include "topology/graph.h"

namespace paceline {

struct Ring {
  std::vector<int> order;  // GPUs; the last sends to the first
  Flow rate = 0;           // kB/s
};

struct RingPacking {
  std::vector<Ring> rings;  // the widest first; empty where there is no ring
  Flow rate = 0;            // kB/s of all together: the busbw of all-gather and all-reduce over them
  bool exact = true;        // no other rings are faster together, in lanes or parts of them
};

// Of a valid topology, as select() gives it. One GPU has no rings.
RingPacking pack_rings(const Topology& topology, std::int64_t steps = 2'000'000);

}  // namespace paceline
