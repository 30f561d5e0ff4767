// Driving executions to their end: the one place that waits.
//
// A wait spins for microseconds, then yields its CPU, then sleeps; with more ranks than CPUs it does not spin. It ends
// by success, by the end of the communicator (a death, a report, an abort), or at the timeout, which finds out and
// names the rank that holds the call up.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/status.h"
#include "engine/execution.h"

namespace paceline {

// Run one execution to its end.
Status run(Execution& execution);

// Run all of these, of several communicators, side by side to their ends. When the execution of this number is found to
// have ended, `go_on` begins what it has to run next, and says so by `begun`. With nothing begun it is done: its
// communicator's end is no more a reason to end the others.
using GoOn = std::function<Status(std::size_t number, bool& begun)>;
Status run(std::span<Execution* const> executions, const GoOn& go_on);

}  // namespace paceline
