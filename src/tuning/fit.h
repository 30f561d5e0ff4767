// The constants of the cost model that explain measured times best.
//
// Wanted are start-up times, cost of a step, the bandwidths, and how much goes on side by side: those for which
// the sum of |ln(predicted / measured)| over all points is least, without going far from the base where that says
// little. A pattern search over the constants' logarithms finds them: each constant in turn up and down, then any two
// at once, by steps that halve when nothing helps any more, and after each round all of what has helped once more
// (Hooke and Jeeves, J. ACM 8, 1961). The formulas are cheap: thousands of trials take a fraction of a second.
#pragma once

#include "tuning/profile.h"

namespace paceline {

// `base`: the model by which the measured calls were planned; what is not fitted stays.
CostModel fit(const CostModel& base, int ranks, const std::vector<Curve>& curves);

// The median of |predicted / measured - 1| by a model, of calls planned by `base`.
double median_error(const CostModel& model, const CostModel& base, int ranks, const std::vector<Curve>& curves);

}  // namespace paceline
