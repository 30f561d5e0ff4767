// What goes over the control connections, once the handshake has passed.
//
// A frame is the body's length (4 bytes), then the body: the kind of message (1 byte) and its fields in the order in
// which the structs below have them; numbers little-endian, texts and bytes with their length (4 bytes) before them.
//
// Ranks are the session's unless said otherwise. `communicator` is Session::enter's id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/call.h"
#include "base/status.h"
#include "bootstrap/session.h"

namespace paceline {

// To rank 0, first of all: I am here, and how many I think we are.
struct Join {
  std::uint32_t size = 0;
  Member member;  // address is left to rank 0
};
// From rank 0, once for each rank: it has come. Rank 0's own comes again until all have: a sign of life.
struct Arrival {
  std::uint32_t rank = 0;
  Member member;
};
// Both ways: the rendezvous is over, without success.
struct Refusal {
  Status::Detail reason;
};
// From a rank 0 that joins in another process than the one that made the unique id, to that, and from there to
// all: where rank 0 gathers them.
struct GatheringPlace {
  std::string address;
  std::uint32_t port = 0;
};
// To rank 0, and from there to all: one rank's part of an exchange.
struct Contribution {
  std::uint32_t round = 0;
  std::uint32_t rank = 0;
  Bytes bytes;
};
// To rank 0, and from there to all: an exchange has failed, and why.
struct Shortfall {
  std::uint32_t round = 0;
  Status::Detail reason;
};
// To rank 0: a rank's call fails. From rank 0: the communicator has ended, and why; ranks are the communicator's.
struct Verdict {
  std::uint64_t communicator = 0;
  Status::Detail reason;
};
// From rank 0: `rank` is dead, or out of reach; `how` follows its name.
struct Death {
  std::uint32_t rank = 0;
  std::string how;
};
// To rank 0: I have waited too long.
struct Suspicion {
  std::uint64_t communicator = 0;
  std::vector<std::uint32_t> ranks;  // session's rank of each of the communicator's
  std::uint32_t waiting = 0;         // communicator's ranks
  std::uint32_t waiting_for = 0;
  Call call;
  double seconds = 0;
};
// From rank 0: what are you doing in this communicator?
struct Ping {
  std::uint64_t inquiry = 0;
  std::uint64_t communicator = 0;
};
struct Pong {
  // absent: has not made it yet, or no more. inside: a collective; in_messages: sends and receives; elsewhere: a call
  // of another communicator.
  enum class State : std::uint8_t { absent, outside, inside, left, in_messages, elsewhere };

  std::uint64_t inquiry = 0;
  State state = State::absent;
  std::uint32_t sequence = 0;
  std::int32_t waiting_for = -1;  // inside, or in_messages: the communicator's rank; -1: none that is known
};
// To rank 0, and from there to all: a rank has left a communicator in peace.
struct Left {
  std::uint64_t communicator = 0;
  std::uint32_t rank = 0;  // the communicator's
  std::uint32_t sequence = 0;
  std::uint32_t size = 0;  // of the communicator
};
// To rank 0, and from there to all: the rank's session ends in peace. Nothing follows.
struct Farewell {
  std::uint32_t rank = 0;
};

using ControlMessage = std::variant<Join, Arrival, Refusal, Contribution, Shortfall, Verdict, Death, Suspicion, Ping,
                                    Pong, Left, Farewell, GatheringPlace>;

inline constexpr std::size_t largest_contribution = std::size_t{1} << 20;                   // bytes
inline constexpr std::size_t largest_body = largest_contribution + (std::size_t{1} << 16);  // bytes

// A whole frame.
Bytes encode(const ControlMessage& message);
// One body. Errors: unknown kind, bytes missing or left over, a value that cannot be.
Result<ControlMessage> decode(std::span<const std::byte> body);

// Cuts a stream into messages.
class FrameReader {
 public:
  void append(std::span<const std::byte> bytes);
  // The next message; nothing if its bytes have not all come. After an error the stream is of no more use.
  Result<std::optional<ControlMessage>> next();

 private:
  Bytes buffer_;
  std::size_t begin_ = 0;
};

}  // namespace paceline
