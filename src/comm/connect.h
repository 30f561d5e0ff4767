// Making a communicator's transports: shared memory with the ranks of the same node, TCP with the others.
//
// Every rank shows a card (its port, its segment, what it was told by the environment), maps what the others announced,
// and then says whether it could. If one could not, all end with its reason. A death, or a rank's report that it could
// not, ends the wait for connections at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cards.h"
#include "bootstrap/session.h"
#include "comm/node_order.h"
#include "engine/execution.h"
#include "schedule/cost.h"
#include "transport/shared_memory.h"
#include "transport/tcp_listener.h"
#include "transport/transport.h"

namespace paceline {

// What rank 0 has read for all: bytes of the texts, and how many GPUs the topology has.
struct Announced {
  std::uint64_t tuning = 0;
  std::uint64_t topology = 0;
  std::uint64_t gpus = 0;
};

struct Connections {
  std::unique_ptr<SharedMemoryTransport> shared_memory;  // nullptr: no other rank on this node
  std::unique_ptr<Transport> tcp;                        // nullptr: no rank elsewhere
  Routes routes;
  int node_rank = 0;
  int node_size = 1;
  bool single_copy = false;     // the ranks of this node can read each other's memory
  bool oversubscribed = false;  // more ranks than CPUs on this node
  // The same on all ranks: what plans may depend on.
  std::size_t largest_message = 0;  // bytes
  double sharing = 1;               // ranks for each CPU, on the fullest node
  bool several_nodes = false;
  std::string_view transport;  // "shm", "tcp", "shm+tcp" or "local": what the ranks use, all together
  NodeOrder nodes;
  // Where its ranks meet should they go on without some of them (Communicator::shrink): this rank's listener, and by
  // rank the ports of all, 0 where one has none.
  std::optional<TcpListener> meeting;
  std::vector<std::uint32_t> meeting_ports;
  bool gpus_in_use = false;  // every rank's process has used a GPU already
  Announced announced;
  std::vector<int> job_ranks;  // by rank: its number in the job, -1 where no launcher says one
};

// members[i]: the communicator's rank i. `id` tells this communicator's connections from others'; `membership` is this
// rank's in it. `refused`: why this rank cannot take part, for all to be told. `announced`: of rank 0 alone, for
// Connections::announced.
Result<Connections> connect(const std::vector<Member>& members, int rank, std::uint64_t id, Membership& membership,
                            const std::string& secret, const Gather& gather, Clock::time_point deadline,
                            const Status& refused = {}, const Announced& announced = {});

// Take part in the exchanges of a connect() without connecting to anyone.
Status sit_out(const Gather& gather);

}  // namespace paceline
