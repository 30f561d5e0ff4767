// A topology from a file's text: a cluster file (cluster_file.h) or NCCL's XML (nccl_xml.h), told by how it begins.
#pragma once

#include <string_view>

#include "topology/graph.h"

namespace paceline {

// Errors (invalid_argument): those of the two readers.
Result<Topology> read_topology(std::string_view text);

}  // namespace paceline
