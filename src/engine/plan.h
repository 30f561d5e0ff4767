// A plan: one rank's part of a schedule, bound to a communicator: bytes instead of elements, transports chosen, the
// fold looked up, and for every step that writes what must have been sent before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/copies.h"
#include "base/reduction.h"
#include "base/rounding.h"
#include "schedule/schedule.h"

namespace paceline {

// The transports of a communicator, by their numbers: each rank is reached by one.
struct TransportNumber {
  enum : std::uint8_t { shared_memory, tcp, count };
};
inline constexpr int max_transports = TransportNumber::count;

// How a communicator reaches its ranks, as far as plans need to know.
struct Routes {
  int rank = 0;
  std::vector<std::uint8_t> transport;  // TransportNumber, by rank
  // By transport: it may read a sent message's data, even of one that does not stay, after accepting it; it may have to
  // put a message that is folded somewhere.
  std::array<bool, max_transports> keeps_data{};
  std::array<bool, max_transports> needs_place{};
  // Outputs of so many bytes are written past the cache.
  StreamingFrom streaming_from;
  // What is passed on is taken over (base/copies.h): where each rank has a CPU of its own. Where ranks share CPUs the
  // next one may be on this one, and all-gathers by 4 ranks of two take a tenth longer so.
  bool takes_over = false;
};

// Messages that one lane may keep at once, to pass them on.
inline constexpr int most_kept = 16;

struct PlanStep {
  Action action = Action::send;
  std::uint8_t channel = 0;
  std::uint8_t transport = TransportNumber::shared_memory;  // of a send
  bool stays = false;                                       // of a send: no later step writes what it reads
  bool to_all = false;                                      // as the schedule's
  bool streams = false;  // of others: the target need not be in the cache, no later step reads it
  Buffer source_buffer = Buffer::input;
  Buffer target_buffer = Buffer::output;
  // Of a receive, or a fold of one message: where the lane keeps the message, if its transport can, for a later send of
  // the same, which has the same number. -1: nowhere.
  std::int16_t kept = -1;
  bool unread = false;  // of a receive that keeps its message: nothing else reads the target before it is overwritten
  std::int16_t own = -1;
  std::uint32_t first_peer = 0;
  std::uint32_t peer_count = 0;
  // So many steps from this one on are receives of long messages, none of which writes where another does: of different
  // ranks' the one that is there may be taken first.
  std::uint32_t in_any_order = 0;
  std::size_t source = 0;  // bytes
  std::size_t target = 0;  // bytes
  std::size_t bytes = 0;
  // Sends of this lane, by transport, that must have left before the step may write.
  std::array<std::uint32_t, max_transports> after{};
};

struct Plan {
  std::vector<std::vector<PlanStep>> lanes;  // by channel
  std::vector<int> peers;
  std::size_t element_bytes = 0;
  FoldFunction fold = nullptr;
  std::size_t scratch_bytes = 0;
  std::size_t place_bytes = 0;  // of one lane: room for the messages of the largest fold, where a transport needs it

  bool single_copy = false;  // receivers may read from the senders' processes
  bool takes_over = false;   // as Routes'

  std::uint16_t way = 0;  // rides in the messages: another one, at another rank, is another plan
  std::string algorithm;
  std::size_t chunk_bytes = 0;
  double predicted_us = 0;
};

// Bytes from one place to the next, where a lane has places for the messages of a fold.
constexpr std::size_t place_stride(std::size_t message_bytes) { return rounded_up(message_bytes, 64); }

// The part of routes.rank. `type` is the element of the data, or uint8 for a barrier.
Plan bind(Schedule& schedule, const Routes& routes, DataType type, Operation op);

}  // namespace paceline
