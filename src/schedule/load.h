// What an algorithm asks of its ranks: steps, bytes, and what waits for what. Cost formulas say it, the constants of
// cost.h turn it into a time.
#pragma once

namespace paceline {

// What one rank does: steps, and bytes.
struct Load {
  double steps = 0;
  double receivers = 0;  // of its messages, beside the first of each (CostModel::further)
  double sent = 0;
  double passed = 0;   // of `sent`: on as it came, or as it was folded when it came (CostModel::sending)
  double beside = 0;   // of `sent`, and not of `passed`: to ranks at home on the same CPU (CostModel::homes)
  double taken = 0;    // received, and not folded
  double folded = 0;   // received and folded into the rank's own data
  double written = 0;  // results of folds: a fold of many operands writes once
  double copied = 0;   // from one of its buffers to another
  double common = 0;   // received, folded or not, where other ranks read it, too: it was written once for all of them
};

// Every field, for what is done with each of them.
inline constexpr double Load::*load_fields[] = {&Load::steps,  &Load::receivers, &Load::sent,   &Load::passed,
                                                &Load::beside, &Load::taken,     &Load::folded, &Load::written,
                                                &Load::copied, &Load::common};
static_assert(sizeof load_fields / sizeof *load_fields == sizeof(Load) / sizeof(double), "a field is missing");

inline Load operator+(Load a, const Load& b) {
  for (const auto field : load_fields) a.*field += b.*field;
  return a;
}
inline Load operator*(double factor, Load a) {
  for (const auto field : load_fields) a.*field *= factor;
  return a;
}

// Bytes that leave a node, or come to it: of all its ranks, and of the busiest one.
struct Crossing {
  double node = 0;
  double rank = 0;
};

// What an algorithm asks of its ranks.
struct Work {
  double hops = 0;      // messages on the longest chain in which each waits for the one before
  double inside = 0;    // of the hops, those between ranks of one node
  double turns = 0;     // how often a rank waits for others while ranks share a CPU
  double partners = 0;  // of messages that a rank waits for at once, those that come from further ranks than the first
  double boards = 0;    // the same of messages that go to all ranks
  Load fill;            // work on the longest path that nothing overlaps: the filling of a pipeline
  Load busiest;         // of all ranks
  Load mean;            // of all ranks
  Crossing cable;       // of the busiest node
};

}  // namespace paceline
