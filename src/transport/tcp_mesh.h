// How the ranks of a communicator get their data connections: one for each pair of ranks and channel.
//
// Of two ranks the lower one connects, the higher one accepts. Both go on at once, so that it does not matter in which
// order ranks arrive; every connection opens with the handshake, and one that does not know the secret, or is not
// awaited, is dropped. So is one that does not say in time who it is; of a crowd, or where it takes the last
// descriptors, sooner. A rank dropped with the crowd comes again.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "bootstrap/handshake.h"
#include "bootstrap/socket.h"
#include "transport/tcp_listener.h"

namespace paceline {

// A rank of the communicator that TCP reaches.
struct TcpPeer {
  int rank = 0;
  std::string host;     // for messages
  std::string address;  // numeric
  std::uint16_t port = 0;
};

// One rank's view of a communicator.
struct TcpGroup {
  std::uint64_t id = 0;  // the same on all ranks
  int rank = 0;
  int size = 1;
  int channels = 1;
  std::string host;  // this rank's, for messages
  std::string secret;
  std::vector<TcpPeer> peers;                   // with their listeners
  std::function<bool(int rank)> has_left = {};  // in peace, as far as is known; empty: nobody would know
};

// The connected, non-blocking sockets: that to peers[i] on channel c is number c * peers.size() + i. Errors: timeout
// naming the ranks that did not come, a rank that cannot be reached, too few file descriptors; aborted if given up.
Result<std::vector<PrivateDescriptor>> connect_peers(TcpListener listener, const TcpGroup& group, const Until& until);

}  // namespace paceline
