#include "cuda/calls/messages.h"

#include <algorithm>

#include "cuda/calls/exchange.h"
#include "cuda/memory/rank_bits.h"

namespace paceline::cuda {
namespace {

// Sends and receives: by strips up to here, found on two H200 (docs/notes/gpu.md: longer ones alone would gain, too,
// but not beside still longer ones); one at once up to here. Both sides must say the same, so no table is asked.
constexpr std::uint64_t messages_to = 16 << 20;
constexpr std::uint64_t brief_message_to = 512 << 10;

// Lanes of a message that goes by strips: the same on both sides, whatever else they send and receive.
std::uint32_t lanes_of_message(std::uint64_t bytes) {
  return std::min(strips_of(bytes), static_cast<std::uint32_t>(message_lanes));
}

}  // namespace

void plan_messages(std::span<const Request* const> messages, int rank, int ranks, int blocks, MessageTask& task,
                   Launch& launch) {
  task = MessageTask();
  std::uintptr_t addresses = 0;
  std::uint64_t lengths = 0;
  bool any_long = false;
  std::uint32_t lanes = 1;    // of the message that has most
  std::uint64_t longest = 0;  // that goes by strips
  const std::byte* to_self = nullptr;
  for (const Request* message : messages) {
    const bool none = message->count == 0;
    const std::uint64_t bytes = none ? bytes_for_none : message->count * size_of(message->type);
    const auto type = static_cast<std::uint8_t>(static_cast<std::uint8_t>(message->type) | (none ? mark_of_none : 0));
    Request bare;  // what all have in common
    bare.which = message->which;
    bare.type = DataType::uint8;
    start(task, rank, ranks, bare);
    task.call_count = typed(bytes, type);
    const bool sends = message->which == Collective::send;
    const bool short_one = bytes <= messages_to;
    if (message->root == rank) {
      if (sends) to_self = message->send;
      if (!sends) task.target = message->recv;
      task.own_bytes = bytes;
      any_long = any_long || !short_one;
      continue;
    }
    const Piece piece{sends ? const_cast<std::byte*>(message->send) : message->recv, bytes};
    (sends ? task.gives : task.takes)[message->root] = piece;
    (sends ? task.give_types : task.take_types)[message->root] = type;
    Cut& its = (sends ? task.give_cuts : task.take_cuts)[message->root];
    addresses |= reinterpret_cast<std::uintptr_t>(piece.data);
    lengths |= bytes;
    if (short_one) {
      its = {0, lanes_of_message(bytes)};
      task.ways[task.way_count++] = {static_cast<std::uint8_t>(message->root), sends};
      lanes = std::max(lanes, its.lanes);
      longest = std::max(longest, bytes);
    } else {
      its = cut(bytes, task.layout, false);
      any_long = true;
      (sends ? task.offers_to : task.offers_from) |= only(message->root);
      task.longest_chunk = std::max(task.longest_chunk, its.chunk);
    }
  }
  task.own = to_self;
  align(task, addresses);
  task.whole = task.alignment == 16 && lengths % 16 == 0;
  task.strips = strips_of(longest);
  if (any_long) {
    launch = {Family::large, max_blocks, 0};
    return;
  }
  launch = by_strips(longest <= brief_message_to ? Form{Family::brief} : Form{Family::streaming, paired_stride},
                     lanes * std::max<std::uint32_t>(1, task.way_count), 1, blocks, 0);
  if (task.strips > overlapped_strips) lay_in_clusters(launch);
}

}  // namespace paceline::cuda
