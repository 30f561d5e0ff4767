// What a communicator goes by where nothing was tuned: the constants of its cost model, and which calls read other
// ranks' memory. Each was measured on 2 to 16 CPUs of a few machines (docs/notes/cpu.md, docs/notes/predictions.md);
// tests/python/test_untuned_choice.py judges them all by measured times.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "schedule/cost.h"
#include "schedule/request.h"
#include "tuning/variant.h"

namespace paceline {

// Where a communicator's ranks are, and what is between them: the same on all of them.
struct Surroundings {
  struct Link {
    double rate = 0;   // bytes per us
    double start = 0;  // us that a short message takes
  };

  int ranks = 1;
  double sharing = 1;               // ranks for each CPU, on the fullest node
  std::size_t largest_message = 0;  // bytes
  bool several_nodes = false;
  int node_ranks = 1;             // as CostModel has it
  std::vector<int> order;         // as CostModel has it
  std::optional<Link> slowest{};  // between nodes, if that was measured
};

// For elements of one byte.
CostModel untuned_model(const Surroundings& where);

// CostModel::common_share of what few ranks read in one place and copy past a shared cache that is far
// (StreamingFrom::early): with what others cost, broadcasts of 5 and 20 MB on 3 and 4 ranks would go by algorithms that
// take 1.2 to 1.55 times as long.
inline constexpr double common_share_past_cache = 0.6;

// Bytes that a rank reads of another's memory at once: 8 MB each way between two ranks take 648 us so, 675 in pieces of
// 128 KiB.
inline constexpr std::size_t longest_read = 1 << 20;

// Whether ranks of one node, which can, should read each other's memory in a call, unless `protocol` or
// PACELINE_SINGLE_COPY says it.
bool worth_single_copy(const Request& request, int ranks, bool oversubscribed, Protocol protocol);

}  // namespace paceline
