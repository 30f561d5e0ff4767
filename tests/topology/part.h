// Some GPUs of a preset, selected as for a collective on them.
#pragma once

#include <doctest/doctest.h>

#include <numeric>
#include <string_view>
#include <vector>

#include "topology/presets.h"

namespace paceline {

// All of them if none are named.
inline Topology part(std::string_view name, std::vector<int> gpus = {}) {
  const auto whole = preset(name);
  REQUIRE(whole.ok());
  if (gpus.empty()) {
    gpus.resize(whole->gpus().size());
    std::iota(gpus.begin(), gpus.end(), 0);
  }
  auto selected = select(*whole, gpus);
  REQUIRE_MESSAGE(selected.ok(), selected.status().message());
  return *selected;
}

}  // namespace paceline
