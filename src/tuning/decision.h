// How a call runs: by which algorithm, in which chunks, and whether its messages stay in their senders' memory. All
// ranks decide alike, but on the last: there those of one node do.
#pragma once

#include <cstddef>

#include "base/copies.h"
#include "tuning/choice.h"

namespace paceline {

// What this node allows.
struct Means {
  bool several_nodes = false;
  bool single_copy = false;      // its ranks can read each other's memory
  bool oversubscribed = false;   // more ranks than CPUs
  StreamingFrom streaming_from;  // the same on all nodes
};

struct Decision {
  Choice choice;
  std::size_t chunk_bytes = 0;  // that a step moves at most
  bool single_copy = false;
};

// For a collective. forced: an algorithm for wherever it serves, if it names one, and how whatever is chosen is to run.
// tuned: as choose() has it.
Result<Decision> decide(const Problem& problem, const CostModel& model, const Means& means, const NamedVariant& forced,
                        const Tuned* tuned);

// Bytes of the chunks in which a message of so many elements goes to a rank of this node, or to one of another.
std::size_t message_chunk(std::size_t count, const CostModel& model, bool same_node);

}  // namespace paceline
