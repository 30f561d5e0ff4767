// What one kernel does on one rank: it gives each peer a piece of the rank's memory and takes a piece from each, which
// it folds or puts where it belongs. Every collective is one such exchange or two in a row (exchange.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/calls/direct.h"
#include "cuda/memory/window.h"

namespace paceline::cuda {

// Pinned host memory through which a communicator's kernels and its host speak when something is wrong.
struct alignas(8) Alarm {  // the first two are read at once
  std::uint32_t abort;     // by the host, or by the first kernel that gives up: all kernels end
  std::uint32_t left;      // by the host; bit r: all kernels of rank r have ended, and no more come
  std::uint32_t raised;    // by the first kernel that gives up: the fields below say why
  std::uint32_t cause;     // AlarmCause
  std::uint32_t rank;      // whom it waited for, or who called something else
  std::uint32_t number;    // of the message between the two ranks
  std::uint32_t what;      // Call::what and count, of this rank's call and of the other's
  std::uint64_t count;
  std::uint64_t other_count;
  std::uint32_t other_what;
  std::uint32_t other_number;  // a later one's, if it is that far ahead
  std::uint32_t blocks_done;   // a copy of WindowWords::blocks_done, which the host has made
  std::uint64_t long_wait;     // LongWaitWord, by threads that have waited so long, again and again; 0: none ever has
};
static_assert(max_gpus <= 32);
enum class AlarmCause : std::uint32_t { timeout = 1, mismatch = 2, left = 3, gave_up = 4 };

// A wait for a rank that has not come to a call, by a thread that has waited for seconds: what the host is told of it
// in one word. Time is cut to units of 2^27 ns, so that the word changes several times a second.
struct LongWaitWord {
  std::uint32_t what;  // Call::what
  int rank;
  std::uint64_t ns;

  PACE_HOST_DEVICE constexpr std::uint64_t pack() const {
    return std::uint64_t{what} << 32 | static_cast<std::uint64_t>(rank) << 24 | (ns >> 27 & 0xffffff);
  }
  static constexpr LongWaitWord of(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<int>(word >> 24 & 0xff), (word & 0xffffff) << 27};
  }
};
inline constexpr std::uint64_t long_wait_ns = 5'000'000'000;
static_assert(max_gpus <= 0x100);

// A stretch of this rank's memory for one peer. Long ones travel in chunks: chunk k in lane k % lanes.
struct Piece {
  std::byte* data;
  std::uint64_t bytes;  // 0: no piece
};

inline constexpr int no_rank = max_gpus;

// A rank's pieces for all peers: that of rank p is `length` bytes at data + p * stride, no further than `total`. One
// rank may have no place in the row: those behind it move up.
struct Pieces {
  std::byte* data;
  std::uint64_t stride;
  std::uint64_t length;
  std::uint64_t total;
  std::uint32_t ranks;  // bit p: there is one for rank p
  int without = no_rank;

  [[nodiscard]] constexpr Piece of(int rank) const {
    const std::uint64_t begin = static_cast<std::uint64_t>(rank > without ? rank - 1 : rank) * stride;
    if ((ranks >> rank & 1) == 0 || begin >= total || rank == without) return {nullptr, 0};
    const std::uint64_t left = total - begin;
    return {data + begin, left < length ? left : length};
  }
};

// How a piece is cut.
struct Cut {
  std::uint32_t chunk;  // bytes, a multiple of 16; 0: it goes by strips
  std::uint32_t lanes;
};

// The part of a kernel's argument that every exchange has. What short messages need stands first: a kernel's arguments
// are fetched line by line.
struct Terms {
  Alarm* alarm;
  std::uint32_t* ended;  // WindowWords::ended of this rank
  std::uint64_t timeout_ns;
  std::uint32_t call_what;
  std::uint8_t rank;
  std::uint8_t ranks;
  std::uint8_t op;       // Operation: sum, prod, max or min
  std::uint8_t divides;  // what is folded is divided by this, if not 0
  std::uint64_t call_count;
  std::byte factor[8];     // Factor, base/reduction.h
  bool counted;            // its blocks are, when they have ended: it is no part of a graph
  bool after_direct;       // a kernel of exchange_direct.cuh came before this long one, and may have done it all
  bool folds;              // else copies
  bool scales;             // what is given is multiplied by `factor` first
  bool overwrites;         // a piece that is taken may lie where one is given
  std::uint8_t alignment;  // 16, 8, 4 or 1: what all addresses are multiples of
  bool whole;              // short messages: so are all lengths, of 16
  std::uint32_t strips;    // short messages: of the longest piece between any two ranks
  WindowLayout layout;
  // This rank's own contribution: a fold's operand, or what is copied.
  const std::byte* own;
  std::byte* target;        // of the fold, or of the copy; a fold's may be nowhere, if it is relayed
  std::uint64_t own_bytes;  // 0: none
};

// The argument of a collective's kernel.
struct Task : Terms {
  Pieces gives;
  Pieces takes;  // folds: only the lengths count
  // What is folded, or taken, goes on to these ranks, bit by rank, as a second message; and where theirs is put. Short
  // messages only.
  std::uint32_t relays;
  Pieces gathered;
  Cut cut;
  std::byte* windows[max_gpus];

  [[nodiscard]] constexpr Piece give(int peer) const { return peer == rank ? Piece{nullptr, 0} : gives.of(peer); }
  [[nodiscard]] constexpr Piece take(int source) const { return source == rank ? Piece{nullptr, 0} : takes.of(source); }
  [[nodiscard]] constexpr std::uint32_t chunk_bytes() const { return cut.chunk; }  // of the longest
  [[nodiscard]] constexpr Cut give_cut(int) const { return cut; }
  [[nodiscard]] constexpr Cut take_cut(int) const { return cut; }
  // How many messages there are between this rank and another.
  [[nodiscard]] constexpr std::uint32_t messages_to(int peer) const {
    return (give(peer).bytes != 0 ? 1u : 0u) + (relays >> peer & 1);
  }
  [[nodiscard]] constexpr std::uint32_t messages_from(int source) const {
    return (take(source).bytes != 0 ? 1u : 0u) + (gathered.of(source).bytes != 0 ? 1u : 0u);
  }
  // What an announcement carries for a message.
  [[nodiscard]] constexpr std::uint64_t count_to(int) const { return call_count; }
  [[nodiscard]] constexpr std::uint64_t count_from(int) const { return call_count; }
};

// A piece of a send or receive that goes by strips.
struct Way {
  std::uint8_t peer;
  bool gives;
};

// What is announced of a message: its bytes, and above them its type.
inline constexpr int type_shift = 56;
constexpr std::uint64_t typed(std::uint64_t bytes, std::uint8_t type) {
  return bytes | static_cast<std::uint64_t>(type) << type_shift;
}

// The argument of the kernel of sends and receives that go on side by side: each has its own length and type, and is
// announced by them.
struct MessageTask : Terms {
  Way ways[2 * max_gpus];
  std::uint32_t way_count;
  std::byte* windows[max_gpus];
  Piece gives[max_gpus];
  Piece takes[max_gpus];
  Cut give_cuts[max_gpus];
  Cut take_cuts[max_gpus];
  std::uint8_t give_types[max_gpus];  // DataType
  std::uint8_t take_types[max_gpus];
  std::uint32_t longest_chunk;
  // Long pieces, bit by rank: offered to it, or by it (long_messages.cuh). And where it sees the piece that is offered
  // to it; 0: it does not, and gets it through its window.
  std::uint32_t offers_to;
  std::uint32_t offers_from;
  std::uint64_t offers[max_gpus];

  // What goes through the window.
  [[nodiscard]] constexpr Piece give(int peer) const {
    return peer == rank || offers[peer] != 0 ? Piece{nullptr, 0} : gives[peer];
  }
  [[nodiscard]] constexpr Piece take(int source) const { return source == rank ? Piece{nullptr, 0} : takes[source]; }
  [[nodiscard]] constexpr std::uint32_t chunk_bytes() const { return longest_chunk; }
  [[nodiscard]] constexpr Cut give_cut(int peer) const { return give_cuts[peer]; }
  [[nodiscard]] constexpr Cut take_cut(int source) const { return take_cuts[source]; }
  [[nodiscard]] constexpr std::uint32_t messages_to(int peer) const { return gives[peer].bytes != 0 ? 1 : 0; }
  [[nodiscard]] constexpr std::uint32_t messages_from(int source) const { return takes[source].bytes != 0 ? 1 : 0; }
  [[nodiscard]] constexpr std::uint64_t count_to(int peer) const { return typed(gives[peer].bytes, give_types[peer]); }
  [[nodiscard]] constexpr std::uint64_t count_from(int source) const {
    return typed(takes[source].bytes, take_types[source]);
  }
};

// What counts as a message between any two ranks.
struct TermsOfAll : Terms {
  [[nodiscard]] constexpr std::uint32_t messages_to(int peer) const { return peer == rank ? 0 : 1; }
  [[nodiscard]] constexpr std::uint32_t messages_from(int source) const { return source == rank ? 0 : 1; }
  [[nodiscard]] constexpr std::uint64_t count_to(int) const { return call_count; }
  [[nodiscard]] constexpr std::uint64_t count_from(int) const { return call_count; }
};

// The argument of the kernel of passed_strips.cuh.
struct PassTask : TermsOfAll {
  int root;
  std::byte* windows[max_gpus];
};

// Instead of an address: there is no buffer, and none is needed.
inline constexpr std::uint64_t no_buffer = 16;

// The argument of the kernel of exchange_direct.cuh.
struct DirectTask : TermsOfAll {
  std::byte* windows[max_gpus];
  std::byte* input;
  std::byte* output;
  // Where rank p sees these, this one among them; 0: not all do.
  std::uint64_t inputs[max_gpus];
  std::uint64_t outputs[max_gpus];
  std::uint32_t link_blocks;  // that load from other ranks, or store to them; or push
  Folding folding;
  bool stretches_are_even;  // where all buffers are, so is all that is moved
  int root;                 // no_rank: the collective has none
  int count;
  Stretch stretches[max_gpus];  // of a fold: what rank p folds; of what is passed on: what ends at place p
  Task otherwise;  // by strips, where some rank does not see all buffers; without strips: in a kernel behind this one
};

}  // namespace paceline::cuda
