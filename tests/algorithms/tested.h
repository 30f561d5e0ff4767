// The rows of the table that the tests of all rows are about: all, or the one that PACELINE_TEST_ALGORITHM names
// (make prove algorithm=NAME).
#pragma once

#include <cstdlib>
#include <span>
#include <string_view>

#include "algorithms/table.h"

namespace paceline::testing {

inline std::string_view asked_for() {
  const char* name = std::getenv("PACELINE_TEST_ALGORITHM");
  return name == nullptr ? "" : name;
}

inline std::span<const Algorithm> tested() {
  if (asked_for().empty()) return algorithms();
  const Algorithm* one = algorithm_named(asked_for());
  return {one, one == nullptr ? std::size_t{0} : std::size_t{1}};
}

}  // namespace paceline::testing
