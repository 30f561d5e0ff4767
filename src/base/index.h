// Numbers of ranks, GPUs, links and the like are int, as in the public API; containers count in std::size_t.
#pragma once

#include <cstddef>

namespace paceline {

constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace paceline
