// A cost model as JSON, as profiles and requests have it: an object with the members of CostModel that are not to be
// the defaults, by their names ("start", "bandwidth", ...), in its units.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"
#include "schedule/cost.h"

namespace paceline {

// Errors (invalid_argument): no object, an unknown member, a value that is no number or out of its range.
Result<CostModel> read_cost_model(const nlohmann::json& object);

}  // namespace paceline
