// What a communicator goes by where nothing was tuned: the constants of its cost model. Each was measured on 2 to 16
// CPUs of a few machines (docs/notes/cpu.md, docs/notes/predictions.md); tests/python/test_untuned_choice.py judges
// them all by measured times.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "schedule/cost.h"

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

}  // namespace paceline
