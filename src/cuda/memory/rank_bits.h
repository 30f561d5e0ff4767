// Sets of ranks as bits: bit r is rank r.
#pragma once

#include <cstdint>

namespace paceline::cuda {

constexpr std::uint32_t only(int rank) { return std::uint32_t{1} << rank; }
constexpr std::uint32_t all_ranks(int ranks) { return (std::uint32_t{1} << ranks) - 1; }

}  // namespace paceline::cuda
