// The rendezvous: from a Rendezvous to connections between rank 0 and everyone, and everyone's name and address.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bootstrap/control_connection.h"
#include "bootstrap/session.h"
#include "bootstrap/socket.h"

namespace paceline {

// Between two of rank 0 while it waits for the others.
inline constexpr auto sign_of_life = std::chrono::milliseconds(500);
// How long others may meet at the place (Rendezvous::other_meeting): they learn within moments whom they wait for in
// vain.
inline constexpr auto other_meeting_time = std::chrono::seconds(5);

struct Assembly {
  using Messages = std::vector<std::pair<std::uint32_t, ControlMessage>>;  // with their senders

  std::vector<Member> members;
  std::vector<ControlConnection> connections;  // rank 0: by rank, its own closed; others: one, to rank 0
  Messages early;                              // what came right behind the rendezvous' own messages
};

// Rank 0: listens until all have come, on `listener` or, if that is none, where it is told to. Junk, strangers and slow
// connections do not hold it up.
Result<Assembly> gather(const Rendezvous& where, PrivateDescriptor listener);  // gathering.cc
// The others: connects to rank 0, trying again until it listens. Where a signpost says that it gathers elsewhere,
// `where` becomes that.
Result<Assembly> report_in(Rendezvous& where);

// One authenticated connection to rank 0 (or an error that waiting would not cure), trying until the deadline.
Result<PrivateDescriptor> reach(const Rendezvous& where, std::uint32_t kind, const Until& until);

}  // namespace paceline
