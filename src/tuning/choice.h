// The choice of an algorithm for a problem: unless one is forced, the cheapest of the measured ones by the cost
// functions of the table. It depends only on its arguments, and not on whether a rank works in place, which others may
// not: so every rank chooses the same.
#pragma once

#include <span>
#include <string_view>

#include "algorithms/table.h"
#include "base/status.h"
#include "tuning/tuned.h"

namespace paceline {

struct Choice {
  const Algorithm* algorithm = nullptr;
  Parameters parameters;
  Variant variant;
  double predicted_us = 0;  // of the problem as it is on this rank
};

// Whether choose() compares the times of calls in place, on all ranks alike: as most programs call, for the copy that a
// root else makes for itself delays nobody. Measured times are of calls out of place.
bool chosen_in_place(Collective which, const Tuned* tuned);

// forced: used wherever it serves the problem; empty: none. asked: its radix, and the largest chunk of whatever is
// chosen.
// tuned: what was measured, or nullptr; its table goes before costs, its times correct them, and what it has not
// measured is chosen only where it has measured nothing that serves. rows: the table, but in tests.
Result<Choice> choose(const Problem& problem, const CostModel& model, std::string_view forced = {},
                      const Variant& asked = {}, const Tuned* tuned = nullptr,
                      std::span<const Algorithm> rows = algorithms());

}  // namespace paceline
