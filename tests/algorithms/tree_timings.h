// Timings of packed trees that a test goes through, one of each kind.
#pragma once

#include <array>

#include "algorithms/tree_turns.h"

namespace paceline::testing {

inline constexpr std::array every_tree_timing{TreeTiming{},
                                              TreeTiming{0.2},
                                              TreeTiming{0.2, TreeChannels::by_tree},
                                              TreeTiming{0.2, TreeChannels::halves},
                                              TreeTiming{0.1, TreeChannels::one, true},
                                              TreeTiming{0.3, TreeChannels::by_tree, true},
                                              TreeTiming{0.3, TreeChannels::halves, true}};

}  // namespace paceline::testing
