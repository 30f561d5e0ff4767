// How the shared memory of one node's ranks is laid out.
//
//   presence of each rank            one cache line: whether it sleeps, has failed or left, and the call in which it
//                                    waits, or that it did without a message
//   reason of each rank              why the communicator has ended on it
//   mailbox of each (from, to, channel)
//       cells                        a ring of messages: header and small payload in one cache line, or a few
//       taken                        one cache line: how many messages the receiver has used
//   board of each (rank, channel)    the mailbox of its messages to all others, who all read the same cells
//       cells
//       taken of each receiver
//   shuttles                         buffers for payloads with one receiver; each is whose it was sent to last
//   staging of each (rank, channel)  a ring of slots for payloads that do not fit in a cell; several receivers may read
//                                    one slot
//
// Each line has one writer at a time, but who wakes a rank marks it awake. Ranks are the node's, 0..ranks-1.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/call.h"
#include "base/trouble.h"
#include "transport/shared_heap.h"

namespace paceline {

inline constexpr std::size_t cache_line = 64;

struct alignas(cache_line) Presence {
  enum class State : std::uint32_t { takes_part, has_failed, has_left };

  std::atomic<std::uint32_t> asleep;     // 1: wake me (futex) after writing to one of my mailboxes
  std::atomic<std::uint32_t> withdrawn;  // 1: its call has failed; what its messages refer to may have changed
  // The call in which this rank waits long, or which it has ended without a message: {sequence, what} and size. 0:
  // none, or it is being changed.
  std::atomic<std::uint64_t> waiting_words;
  std::atomic<std::uint64_t> waiting_size;
  // For when nobody can tell it to the others any more: the session's rank 0 does, while it is there.
  std::atomic<State> state;
  std::atomic<std::uint32_t> last;  // has_left: after its collective of this number
};

struct alignas(cache_line) Reason {
  Trouble why;  // written before Presence::state says has_failed
};

enum class Payload : std::uint32_t {
  in_cell,
  in_slot,     // Cell::where is an offset in the segment
  in_shuttle,  // Cell::where is the number of a shuttle, which is the receiver's from now on
  in_sender,   // Cell::where is an address in the sender's process
  in_heap,     // Cell::place: memory of paceMemAlloc
};

struct alignas(cache_line) Cell {
  std::atomic<std::uint32_t> stamp;  // message number + 1 (its lower half), written last
  std::uint32_t bytes : 29, payload : 3;
  Call call;
  union {
    std::uint64_t where;
    HeapPlace place;
    std::byte data[40];  // and on into the cell's other lines
  };
};
static_assert(sizeof(Cell) == cache_line);

struct alignas(cache_line) Taken {
  std::atomic<std::uint64_t> count;  // never wraps: a slot may be looked at again after any number of messages
};

// Bytes of slots a rank and channel. Whoever reads a slot keeps it in its CPU's own cache (1 or 2 MiB today), and to
// write there again it must be fetched from that: by then newer slots should have pushed it out.
inline constexpr std::size_t default_staging = 2 << 20;

// Shuttles that each rank has at first, together as long as a channel's slots at most.
//
// Whoever reads lines that another CPU of an EPYC has written gets them for writing, too: what it then sends itself is
// written there at once, while their first writer would have to fetch them back. 64 KB to another CPU and back take 2.1
// us each way so; in staging that is walked through 2.6, in one of 64 KiB 8.0. Between CPUs far from each other it is 5
// us, 25 and 34.
inline constexpr std::uint32_t shuttles_of_rank = 16;

class NodeLayout {
 public:
  // `staging`: bytes of slots a rank and channel, at most largest_staging; a slot has 16 KiB at least.
  NodeLayout(int ranks, int channels, std::size_t staging);

  [[nodiscard]] std::size_t total() const { return total_; }
  [[nodiscard]] std::uint32_t cells() const { return cells_; }  // a power of two
  [[nodiscard]] std::size_t cell_bytes() const { return cell_bytes_; }
  [[nodiscard]] std::size_t cell_payload() const { return cell_bytes_ - offsetof(Cell, data); }
  [[nodiscard]] std::uint32_t slots() const { return slots_; }
  [[nodiscard]] std::size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] std::uint32_t shuttles() const;                               // of all ranks
  [[nodiscard]] std::size_t shuttle_bytes() const { return shuttle_bytes_; }  // 0: there are none

  // Offsets in the segment.
  [[nodiscard]] std::size_t presence(int rank) const { return static_cast<std::size_t>(rank) * sizeof(Presence); }
  [[nodiscard]] std::size_t reason(int rank) const {
    return reasons_at_ + static_cast<std::size_t>(rank) * sizeof(Reason);
  }
  [[nodiscard]] std::size_t mailbox(int from, int to, int channel) const;
  [[nodiscard]] std::size_t taken(int from, int to, int channel) const {
    return mailbox(from, to, channel) + cells_ * cell_bytes_;
  }
  [[nodiscard]] std::size_t board(int from, int channel) const;
  [[nodiscard]] std::size_t board_taken(int from, int to, int channel) const {
    return board(from, channel) + cells_ * cell_bytes_ + static_cast<std::size_t>(to) * sizeof(Taken);
  }
  [[nodiscard]] std::size_t shuttle(std::uint32_t number) const;
  [[nodiscard]] std::size_t slot(int rank, int channel, std::uint32_t number) const;

 private:
  [[nodiscard]] std::size_t board_bytes() const { return cells_ * cell_bytes_ + ranks_ * sizeof(Taken); }

  std::size_t ranks_;
  std::size_t channels_;
  std::uint32_t cells_;
  std::size_t cell_bytes_;
  std::uint32_t slots_;
  std::size_t slot_bytes_;
  std::size_t shuttle_bytes_;
  std::size_t reasons_at_;
  std::size_t mailboxes_at_;
  std::size_t boards_at_;
  std::size_t shuttles_at_;
  std::size_t slots_at_;
  std::size_t total_;
};

}  // namespace paceline
