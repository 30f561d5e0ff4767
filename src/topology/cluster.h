// Clusters: many equal nodes around a leaf-spine network.
#pragma once

#include "topology/graph.h"

namespace paceline {

struct Network {
  Rating nic;                   // from a NIC to its leaf switch, each way
  int nodes_per_leaf = 0;       // 0: all nodes on one switch, which never blocks
  int spines = 1;               // each leaf has a link to each spine
  double oversubscription = 1;  // what the NICs of a leaf can send, over what the leaf can send to the spines
};

// `nodes` copies of a valid topology of one node. All its NICs are connected to the node's leaf switch. The copies'
// vertices are called node0/..., a network that the node came with stays behind; the switches are called leaf0,
// spine0; GPU g of node k is GPU k * (GPUs a node) + g.
// Errors (invalid_argument): no nodes; a node without NIC, unless it is the only one; numbers of the network that
// are not positive.
Result<Topology> cluster(const Topology& node, int nodes, const Network& network);

}  // namespace paceline
