// Traffic of schedules that are too large to write down: where all parts of a cluster do the same, one part's ranks are
// simulated.
#pragma once

#include "algorithms/table.h"
#include "schedule/simulator.h"

namespace paceline {

// Whether rank `period` does what rank 0 does, which mostly tells, and soon.
bool seems_symmetric(const Algorithm& algorithm, const Problem& problem, const Parameters& parameters,
                     std::size_t element_bytes, int period);

// The traffic of the algorithm on GPUs 0, 1, ..., with the programs of `period` ranks only, if rank r + period does
// what rank r does (seen on the ranks of the first two and of the last node); nothing otherwise. The schedule is
// written rank by rank.
std::optional<Traffic> symmetric_traffic(const Algorithm& algorithm, const Problem& problem,
                                         const Parameters& parameters, std::size_t element_bytes, int period);

// The least count, not below the problem's, that is cut into blocks of one length on every rank.
std::size_t even_count(const Problem& problem);

}  // namespace paceline
