// The shared-memory transport, for ranks of one node (node_layout.h shows the memory).
//
// A message of up to five lines, or, where its rank has no shuttles to spare, up to a cell's payload, travels in its
// cell: one cache line for the smallest, no system call, no atomic read-modify-write. One to all ranks is written once,
// on its sender's board, where they all read it: 128 B from one of 16 ranks take 0.65 us so, 1.8 us in a mailbox of
// each (Xeon). A longer one stays where it is if its receivers can read it there: in memory of paceMemAlloc, which they
// map, or, where single copy is in use, in the sender's process. Else it is copied: for one receiver into a shuttle, if
// this rank has one, or into a staging slot that its receivers read.
//
// A sender knows from the receiver's `taken` counters what it may reuse. Wake-ups cost the sender one load: a rank that
// goes to sleep says so and then looks for longer than a message under way takes, so that the fast side needs no fence.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/rounding.h"
#include "schedule/schedule.h"
#include "transport/node_layout.h"
#include "transport/segment.h"
#include "transport/staging_writer.h"
#include "transport/transport.h"

namespace paceline {

struct NodePeer {
  int rank = 0;  // in the communicator
  pid_t pid = 0;
  bool identified = false;  // here `pid` is that process and no other
};

// Which messages stay where they are, by their length in bytes; 0: none.
struct ReadInPlace {
  std::size_t heap_from = 0;         // in memory of paceMemAlloc
  std::size_t single_copy_from = 0;  // anywhere, through process_vm_readv: where use_single_copy() says so
};

class SharedMemoryTransport final : public Transport {
 public:
  // peers[i]: the node's rank i.
  SharedMemoryTransport(std::shared_ptr<Segment> segment, const NodeLayout& layout, std::vector<NodePeer> peers,
                        int my_node_rank, int ranks, ReadInPlace in_place);
  ~SharedMemoryTransport() override;

  [[nodiscard]] std::string_view name() const override { return "shm"; }
  Attempt send(int channel, std::span<const int> to, const Call& call, std::span<const std::byte> data,
               bool stays = false, bool to_all = false) override;
  [[nodiscard]] std::uint64_t sent(int channel) override;
  Attempt receive(int channel, int from, const Call& call, std::size_t bytes, std::byte* place, const std::byte** data,
                  bool to_all = false) override;
  [[nodiscard]] std::size_t short_message() const override { return layout_.cell_payload(); }
  void expect(int channel, int from, bool to_all = false) override;
  Attempt release(int channel, int from, bool to_all = false) override;
  std::byte* own(int channel, int from, bool to_all) override;
  Attempt keep(int channel, int from, bool to_all, std::uint32_t* kept) override;
  Attempt pass_on(int channel, int to, const Call& call, std::uint32_t kept, std::size_t bytes, bool to_all) override;
  [[nodiscard]] int holder(int channel, std::span<const int> to, const Call& call, bool to_all = false) override;
  Attempt progress() override;
  void announce_sleep() override;
  void sleep(double microseconds) override;
  void announce(const Call& call) override;
  [[nodiscard]] bool immediate() const override { return true; }
  Attempt compare(int from, const Call& call, bool owed = true) override;
  [[nodiscard]] Status untaken() override;
  [[nodiscard]] bool has_left(int rank, std::uint32_t* sequence) const override;
  [[nodiscard]] Status failure() const override { return failure_; }

  // The communicator has ended on this rank, for this reason, or the rank leaves it after its collective of number
  // `last`: what compare() and has_left() of the others find. Any thread; the first stands.
  void show_failure(const Status& reason);
  void show_departure(std::uint32_t last);
  // Why the communicator has ended on another rank; ok if it has on none. Any thread.
  [[nodiscard]] Status failure_elsewhere() const;

  // This rank's call has failed: what its messages refer to is its program's again. Who reads there from now on is told
  // so by release().
  void withdraw();

  // This rank's call has ended: it waits no more. Sequence numbers wrap, so that what is known of a wait long past, or
  // of a call without a message, would one day look like one in a call to come.
  void end_wait() {
    if (shown_for_ == 0 || --shown_for_ != 0) return;
    presence_->waiting_words.store(0, std::memory_order_relaxed);  // orders nothing: no words, no call
  }

  // Fetch at once what progress() would in waits to come: the call has ended, and nobody waits for this rank.
  void fetch_ahead() {
    while (ahead_.bytes != 0) (void)progress();
  }

  // Whether the messages of the call that begins now may be read from the sender's process. Those from `input` are
  // tried together: whether others can read there. No others are longer than a slot.
  void use_single_copy(bool use, std::span<const std::byte> input = {}) {
    single_copy_from_ = 0;
    input_copy_.reset();  // an earlier call's
    if (use) begin_single_copy(input);
  }

 private:
  // A message is often followed by one like it: where that would be written in staging. While this rank waits, it
  // fetches these lines, a few at each look; where it need not wait, all of them (fetch_ahead).
  struct Ahead {
    int channel = 0;
    int receiver = 0;
    Call call;
    std::uint32_t bytes = 0;  // 0: nothing is to be fetched
    std::uint32_t fetched = 0;
    const std::byte* place = nullptr;  // nullptr: not looked for yet
  };
  // One that is this rank's.
  struct Shuttle {
    std::uint32_t number = 0;
    std::uint32_t carried = 0;  // bytes, to this rank: these lines are in its cache
    std::uint64_t came = 0;     // what brought_ was
  };
  // One side's view of a mailbox, or of a board: one receiver's part of it.
  struct Mailbox {
    std::byte* cells = nullptr;
    std::atomic<std::uint64_t>* taken = nullptr;
    Presence* presence = nullptr;  // of the other side
    std::uint64_t next = 0;        // message to send or receive
    std::uint64_t taken_seen = 0;  // sender: the counter when last read
    std::uint32_t sequence = 0;    // receiver: of the collective of the last message
  };
  // A message as it is to be sent.
  struct Outgoing {
    int channel = 0;
    Mailbox* boxes = nullptr;  // by rank
    std::span<const int> to;
    bool to_all = false;
    const Call& call;
    std::size_t bytes = 0;
  };
  // Places of one channel's messages that must not be changed until all have taken them: slots, or this process's own
  // memory.
  class Ring {
   public:
    // The oldest message that not all have taken, and the first who has not; nullptr: there is none.
    struct Open {
      std::uint64_t message = 0;  // number among the channel's
      const Mailbox* mailbox = nullptr;
    };

    Ring() = default;
    Ring(std::size_t positions, std::size_t peers) : peers_(peers), held_(positions), receivers_(positions * peers) {}

    // Where a message goes that comes next, to this one (node rank) first of all.
    [[nodiscard]] std::uint32_t position_for(const Call& call, int receiver) const;
    // Of the message there, the first that has yet to take it; nullptr: it may be replaced.
    [[nodiscard]] Mailbox* first_open(std::uint32_t position) const;
    // For the next message of these mailboxes.
    void hold(std::uint32_t position, std::uint64_t number, Mailbox* boxes, std::span<const int> to);
    // Whether any message may not have been taken by all: oldest_open() would say.
    [[nodiscard]] bool may_be_open() const { return may_be_open_; }
    Open oldest_open();

    // In a slot: of its next message.
    [[nodiscard]] std::uint32_t next_offset(std::uint32_t position) const { return held_[position].next_offset; }
    void set_next_offset(std::uint32_t position, std::uint32_t offset) { held_[position].next_offset = offset; }

   private:
    struct Held {
      std::uint64_t message = 0;  // number among the channel's
      std::uint32_t receivers = 0;
      std::uint32_t next_offset = 0;
    };
    struct Receiver {
      Mailbox* mailbox = nullptr;
      std::uint64_t number = 0;
    };

    std::size_t peers_ = 0;
    std::uint32_t next_ = 0;
    bool may_be_open_ = false;
    std::vector<Held> held_;
    std::vector<Receiver> receivers_;  // of each position, `peers_` apart
  };
  struct Lane {
    std::uint64_t accepted = 0;
    Ring slots;
    Ring references;  // messages read from this process's memory
  };

  [[nodiscard]] std::size_t index(int channel, int rank, bool to_all) const {
    return static_cast<std::size_t>(channel + (to_all ? max_channels : 0)) * by_rank_.size() +
           static_cast<std::size_t>(rank);
  }
  [[nodiscard]] int my_rank() const { return peers_[static_cast<std::size_t>(me_)].rank; }
  static bool is_of_earlier_collective(const Call& sent, const Call& call) {
    return is_collective(sent) && comes_before(sent.sequence, call.sequence);
  }
  [[nodiscard]] Cell* cell(const Mailbox& mailbox) const {
    return reinterpret_cast<Cell*>(mailbox.cells + (mailbox.next & (layout_.cells() - 1)) * layout_.cell_bytes());
  }
  // Give away the one to send so many bytes in; there must be one.
  std::uint32_t take_shuttle(std::size_t bytes);
  // Where in a shuttle a message of so many bytes lies.
  [[nodiscard]] std::byte* in_shuttle(std::uint32_t number, std::size_t bytes) const;
  // The next message; nullptr: it is not there yet.
  [[nodiscard]] const Cell* arrived(const Mailbox& mailbox) const {
    const Cell* message = cell(mailbox);
    // Acquire: the stamp comes before the rest of the message.
    const std::uint32_t stamp = message->stamp.load(std::memory_order_acquire);
    return stamp == static_cast<std::uint32_t>(mailbox.next + 1) ? message : nullptr;
  }
  bool has_room(Mailbox& mailbox) const;
  [[nodiscard]] int node_rank_of(int rank) const { return by_rank_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int rank_of(const Mailbox& outgoing) const;
  // How such a message travels; in_heap: `heap` is where.
  Payload choose_payload(const Outgoing& message, const std::byte* data, bool stays, std::optional<HeapPlace>& heap);
  void send_in_shuttle(const Outgoing& message, const std::byte* data);
  Attempt send_in_slot(const Outgoing& message, const std::byte* data);
  Attempt send_by_reference(const Outgoing& message, const std::byte* data, std::optional<HeapPlace> heap);
  // Where in its slot a message of so many bytes goes: in no more pages than it must, for in each the first lines are
  // waited for before the CPU fetches on by itself.
  [[nodiscard]] std::uint32_t offset_in_slot(const Ring& slots, std::uint32_t position, std::size_t bytes) const {
    constexpr std::size_t page = 4096;
    std::size_t begin = slots.next_offset(position);
    if (begin % page + bytes > page) begin = rounded_up(begin, page);
    return static_cast<std::uint32_t>(begin + bytes > layout_.slot_bytes() ? 0 : begin);
  }
  void post(const Outgoing& message, Payload payload, const void* content, std::size_t content_bytes);
  static void write(Cell* to, std::uint64_t stamp, const Call& call, Payload payload, std::size_t bytes,
                    const void* content, std::size_t content_bytes);
  Attempt read_from_sender(Mailbox& mailbox, int from, std::byte* place, const std::byte** data);
  [[nodiscard]] static bool has_withdrawn(const Mailbox& mailbox);
  Attempt withdrawn(const Mailbox& mailbox, int from);
  void pass(Mailbox& mailbox);  // to the next message: this one has been used
  [[nodiscard]] bool any_withdrawn() const;
  // Of memory that no other process can read (shared_memory_single_copy.cc).
  void begin_single_copy(std::span<const std::byte> input);
  [[nodiscard]] bool is_of_input(std::span<const std::byte> data) const;
  [[nodiscard]] bool others_can_read(std::span<const std::byte> data) const;
  std::optional<HeapPlace> stand_in(std::span<const std::byte> data);
  // What compare() does (shared_memory_mismatch.cc).
  void show(const Call& call, std::uint32_t calls);
  [[nodiscard]] std::optional<Call> announced_by(int rank) const;
  // The first of the messages from `from` that this rank would take next of whose call `is` is true; nullptr: none.
  template <class Is>
  [[nodiscard]] const Cell* find_next(int from, const Is& is) const;
  Attempt find_other_call(int rank, const Call& call);
  Attempt find_passed(int from, const Call& call);
  Attempt find_overtaken(int from, const Call& call);
  // And of ranks that take part no more (shared_memory_parting.cc).
  [[nodiscard]] Trouble& reason_of(int node_rank) const;
  Attempt find_failed();
  Attempt find_dead(int rank, const Call& call);
  Attempt fail(Status status);

  std::shared_ptr<Segment> segment_;
  NodeLayout layout_;
  std::vector<NodePeer> peers_;
  std::vector<int> by_rank_;  // node rank of each of the communicator's ranks, -1 for those elsewhere
  int me_;
  ReadInPlace in_place_;
  std::size_t single_copy_from_ = 0;
  std::span<const std::byte> input_;  // of the last call with single copy
  bool input_is_readable_ = false;    // for others
  SharedCopy input_copy_;             // where they read it, if it is not
  StagingWriter staging_writer_;
  Ahead ahead_;
  OwnHeap own_heap_;
  PeerHeaps peer_heaps_;
  std::vector<Mailbox> outgoing_;  // by index()
  std::vector<Mailbox> incoming_;
  std::vector<Lane> lanes_;
  std::vector<Shuttle> shuttles_;  // this rank's, in the order in which they came
  std::uint64_t brought_ = 0;      // bytes, by all shuttles that came
  Presence* presence_;
  std::uint32_t shown_for_ = 0;      // presence_->waiting_words stand until so many more calls have ended
  std::set<int> seen_dead_;          // ranks whose processes compare() has found to have ended
  std::atomic<bool> parted_{false};  // presence_->state is written, or another thread is about to
  Status failure_;
};

}  // namespace paceline
