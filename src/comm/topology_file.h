// The file that says what is between the job's ranks: PACELINE_TOPOLOGY.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace paceline {

struct TopologyFile {
  std::string text;  // empty: none is set
  std::size_t gpus = 0;
};

// Errors (invalid_usage): it cannot be read, or is no topology.
Status read_topology_file(TopologyFile& into);

}  // namespace paceline
