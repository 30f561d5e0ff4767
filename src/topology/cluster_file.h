// A cluster, or a single machine, in one small JSON file: `paceline topo --file F`.
//
//   {
//     "node": {"preset": "dgx-a100"},
//     "nodes": 16,
//     "network": {"nic_gbs": 25, "latency_us": 0.5, "nodes_per_leaf": 4, "spines": 2, "oversubscription": 2}
//   }
//
// or, with a node of one's own,
//
//   "node": {
//     "vertices": [{"name": "gpu0", "kind": "gpu", "compute_capability": 90}, {"name": "nvswitch0", "kind":
//     "nvswitch"}], "links": [{"between": ["gpu0", "nvswitch0"], "kind": "nvlink", "gbs": 450, "latency_us": 0.5}]
//   }
//
// Kinds are those of graph.h. A link has "between" (each way) or "from" and "to" (one way). nodes: 1 without a network.
// docs/topology.md says what each field is.
#pragma once

#include <string_view>

#include "topology/graph.h"

namespace paceline {

// Errors (invalid_argument): not JSON (with the byte where that is seen), a field that is missing, unknown, of another
// type or out of range (with its place), and what validate() and cluster() find.
Result<Topology> read_cluster(std::string_view json);

// Vertices and links of a topology of one node, as "node" has them.
std::string write_node(const Topology& topology);

}  // namespace paceline
