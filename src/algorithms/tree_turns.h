// When the chunks of packed trees travel: turns on the edges that trees share, and one order of all messages.
//
// A tree carries a part of the data in proportion to its weight, cut into as many chunks as every other tree's. Time is
// cut into periods; in each a tree edge carries one chunk, so that the trees that share an edge take turns and fill the
// period. A rank passes a chunk on at its turn in the same period if it has it by then, with some slack, else in a
// later one. Trees to their roots do the same with time turned round.
//
// A rank may have capacity(n) messages under way, counted from the oldest. So that a long message does not hold up many
// short ones, messages are cut at the borders of equal slots of the period; where that is not enough, the oldest
// message is taken early.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/problem.h"
#include "topology/arborescences.h"

namespace paceline {

// A rank may have as many messages under way on each of two channels as on one, and while one of a connection's
// channels starts a message the other's has the link.
enum class TreeChannels : std::uint8_t {
  one,      // for all trees
  by_tree,  // trees alternate between two
  halves    // each tree's data goes in two halves, one on each channel
};

// How the trees take turns. Messages come a little later than the bandwidth alone says; without slack that delay would
// be handed round and grow from period to period. But a chunk that waits is under way for longer.
struct TreeTiming {
  double slack = 0;  // periods between the end of a message and what waits for it
  TreeChannels channels = TreeChannels::one;
  // All-reduce: a chunk goes outward soon after it is folded, not after all of them. Where GPUs have unequal links this
  // uses both ways of the full-duplex links at once. Only where both passes cut the data alike, as they do where links
  // are the same both ways.
  bool overlaps = false;
};

// When an edge carries its chunk: from `begin` to `end` of a period; chunk c in period c + lag.
struct Turn {
  double begin = 0;
  double end = 0;
  int lag = 0;
};

// A tree's part of the data.
struct TreeShare {
  Part part;
  int channel = 0;
  std::vector<Turn> turns;                // of each edge
  std::vector<std::vector<double>> cuts;  // of each edge: where its chunks are cut, as parts of a chunk; the last is 1
};

// All trees' chunks once along their trees.
struct TreePass {
  const TreePacking* packing = nullptr;
  std::vector<TreeShare> shares;
  bool halves = false;  // each two trees are the halves of one
  int slots = 1;
  int chunks = 1;   // of each tree; second halves have one more
  double wait = 0;  // periods from the end of a message until it is taken

  [[nodiscard]] int periods() const { return halves ? chunks + 1 : chunks; }
};

// Where in the data a chunk lies, from 0 to periods() - 1. Those of a second half begin and end where those of the
// first are half way: messages that share a link from the same moment on would end at the same time, too, and no bytes
// would flow while the next two start.
Part chunk_of(const TreePass& pass, std::size_t tree, int chunk);

struct TreeMessage {
  int from = 0;
  int to = 0;  // `from`: what the root has, from its input to its output
  bool inward = false;
  int tree = 0;
  int chunk = 0;
  int channel = 0;
  int fold = 0;      // inward: the same for all messages that are folded into the same elements at a rank
  double begin = 0;  // in periods
  double end = 0;
  double wait = 0;  // from the end until it is taken
  Part part = {};
};

struct TreeMessages {
  std::vector<TreeMessage> list;
  int folds = 0;
};

// A message is sent or taken.
struct TreeEvent {
  std::size_t message = 0;
  bool sends = false;
};

// With as few slots as let fewest messages be taken early. `blocks`: by rank, where in the data the part is that its
// trees carry; `chunk`: elements that a message may have.
TreePass plan_pass(const TreePacking& packing, std::span<const Part> blocks, const TreeTiming& timing,
                   std::size_t chunk);

// Whether both passes carry the same data along trees of the same number, in the same chunks.
bool same_chunks(const TreePass& a, const TreePass& b);

// When a pass has the links: from period `first` on, in each period from `begin` on for `width` of it. One that has
// less than the whole takes its turns as many times faster.
struct TreePeriods {
  double first = 0;
  double begin = 0;
  double width = 1;
};

// When each pass has the links: one after the other; if they overlap, in turn in each period.
std::vector<TreePeriods> periods_of(std::span<const TreePass> passes, const TreeTiming& timing);

// The pass's messages. `copies`: the roots' to themselves, too; `chunk`: elements that a message may have.
void add_messages(TreeMessages& messages, const TreePass& pass, const TreePeriods& periods, bool copies,
                  std::size_t chunk);

// One order of everything that keeps to the capacity, so that the steps cannot block.
std::vector<TreeEvent> order_of(const TreeMessages& messages, int ranks);

}  // namespace paceline
