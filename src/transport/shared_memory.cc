#include "transport/shared_memory.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <optional>

#include "base/rounding.h"
#include "transport/mismatch.h"

namespace paceline {
namespace {

void wake(Presence& presence) {
  // Relaxed, without a fence behind the message: whoever announced sleep unseen looks for longer than the message takes
  // to become visible.
  if (presence.asleep.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  presence.asleep.store(0, std::memory_order_relaxed);
  syscall(SYS_futex, &presence.asleep, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

// Bytes that a message for some ranks may take in all their cells together before one slot for all is faster; a payload
// within the cell's first line always goes there.
constexpr std::size_t multicast_in_cells = 1024;

// Bytes up to which a message goes in a cell in any case: in five lines. A longer one that a cell would hold goes in a
// shuttle while its rank has more than a few, which are left to messages that no cell holds. A rank that answers always
// has: an all-reduce of 12 KB by ring on 16 ranks (Xeon) takes 21.7 us in cells, 17.9 in shuttles.
constexpr std::size_t always_in_cell = 5 * cache_line - offsetof(Cell, data);
constexpr std::size_t left_to_long_ones = 4;

// Bytes up to which a message goes where the last one was just read from, and how many bytes ago a longer one's place
// must have been read: what is in the first-level cache costs more to write again (an all-reduce of 64 KB to one of two
// ranks of a Xeon 6.5 us, this way 4.9), what is in none of this CPU's caches, too.
constexpr std::size_t longest_answer = 4096;
constexpr std::uint64_t not_just_now = 128 << 10;

// Bytes. A process has its page tables of a segment from the beginning, which takes up to 0.8 us for each 4 KiB. Else
// every page costs a fault when it is first used, which goes on for hundreds of calls: each rank reads all others'.
// Longer segments would hold up the start: only what the rank itself writes.
constexpr std::size_t populated_at_most = 128 << 20;

// Bytes of staging to fetch for the next message: of longer ones the reader's copies are the time, not the writer's.
constexpr std::size_t fetched_ahead = 8 << 10;
constexpr std::uint32_t fetched_at_once = 8 * cache_line;

// __builtin_prefetch(place, 1) fetches for reading where the compiler may not use this instruction; x86-64 CPUs that do
// not know it pass over it.
void fetch_for_writing(const void* place) { asm volatile("prefetchw (%0)" ::"r"(place)); }

// Puts a line that was written into the cache that the CPUs share: its reader gets it sooner from there than from this
// CPU. CPUs that do not know this instruction pass over it (cldemote; its name asks the compiler for more than that).
void give_away(const void* line) { asm volatile(".byte 0x0f, 0x1c, 0x07" ::"D"(line) : "memory"); }

// Of the lines of a message in a cell, each behind the one with its stamp. Not inline: the shortest messages have none.
template <void (*do_to)(const void* line)>
[[gnu::noinline]] void behind_stamp(const Cell* cell, std::size_t content_bytes) {
  const auto* const first = reinterpret_cast<const std::byte*>(cell);
  for (std::size_t at = cache_line; at < offsetof(Cell, data) + content_bytes; at += cache_line) do_to(first + at);
}

}  // namespace

SharedMemoryTransport::SharedMemoryTransport(std::shared_ptr<Segment> segment, const NodeLayout& layout,
                                             std::vector<NodePeer> peers, int my_node_rank, int ranks,
                                             ReadInPlace in_place)
    : segment_(std::move(segment)),
      layout_(layout),
      peers_(std::move(peers)),
      by_rank_(static_cast<std::size_t>(ranks), -1),
      me_(my_node_rank),
      in_place_(in_place),
      peer_heaps_([this] { return any_withdrawn(); }),
      outgoing_(static_cast<std::size_t>(2 * max_channels * ranks)),
      incoming_(static_cast<std::size_t>(2 * max_channels * ranks)),
      lanes_(max_channels) {
  std::byte* base = segment_->data();
  const auto presence = [&](int node_rank) { return reinterpret_cast<Presence*>(base + layout_.presence(node_rank)); };
  const auto mailbox = [&](int from, int to, int channel, bool to_all) {
    const std::size_t cells = to_all ? layout_.board(from, channel) : layout_.mailbox(from, to, channel);
    const std::size_t counter = to_all ? layout_.board_taken(from, to, channel) : layout_.taken(from, to, channel);
    auto* taken = &reinterpret_cast<Taken*>(base + counter)->count;
    // Numbers go on from what has been taken: 0 in new memory. Relaxed: nobody writes it before a message is sent.
    const std::uint64_t first = taken->load(std::memory_order_relaxed);
    return Mailbox{base + cells, taken, presence(from == me_ ? to : from), first, first, 0};
  };
  presence_ = presence(me_);
  for (int other = 0; other < static_cast<int>(peers_.size()); ++other) {
    const int rank = peers_[static_cast<std::size_t>(other)].rank;
    by_rank_[static_cast<std::size_t>(rank)] = other;
    for (int channel = 0; channel < max_channels; ++channel) {
      for (const bool to_all : {false, true}) {
        outgoing_[index(channel, rank, to_all)] = mailbox(me_, other, channel, to_all);
        incoming_[index(channel, rank, to_all)] = mailbox(other, me_, channel, to_all);
      }
    }
  }
  shuttles_.reserve(layout_.shuttles());
  for (std::uint32_t i = 0; i < layout_.shuttles() / peers_.size(); ++i)
    shuttles_.push_back({static_cast<std::uint32_t>(me_) * shuttles_of_rank + i});
  for (Lane& lane : lanes_) {
    lane.slots = Ring(layout_.slots(), peers_.size());
    lane.references = Ring(layout_.slots(), peers_.size());
  }
  if (layout_.total() <= populated_at_most) {
    segment_->populate(0, layout_.total());
  } else {
    for (int channel = 0; channel < max_channels; ++channel)
      segment_->populate(layout_.slot(me_, channel, 0), layout_.slots() * layout_.slot_bytes());
    if (!shuttles_.empty())
      segment_->populate(layout_.shuttle(shuttles_.front().number), shuttles_.size() * layout_.shuttle_bytes());
  }
}

SharedMemoryTransport::~SharedMemoryTransport() = default;

Attempt SharedMemoryTransport::fail(Status status) {
  failure_ = std::move(status);
  return Attempt::failed;
}

// Of the last ones the shortest that has brought as many bytes, and for a longer message not just now. If none has, the
// one that came first: of its lines the others' caches have least left. Two lengths in turn would else go to lines that
// the other rank has had last: an all-gather of 300 KB on 2 ranks took 20 us, and takes 9.
std::uint32_t SharedMemoryTransport::take_shuttle(std::size_t bytes) {
  const auto first = shuttles_.end() - std::min<std::ptrdiff_t>(shuttles_of_rank, std::ssize(shuttles_));
  const std::uint64_t away = bytes > longest_answer ? not_just_now : 0;
  const auto brings = [&](const Shuttle& shuttle) {
    return shuttle.carried >= bytes && brought_ - shuttle.came >= away;
  };
  auto best = shuttles_.end();
  for (auto each = first; each != shuttles_.end(); ++each)
    if (brings(*each) && (best == shuttles_.end() || each->carried <= best->carried)) best = each;
  if (best == shuttles_.end()) best = first;
  const std::uint32_t number = best->number;
  shuttles_.erase(best);
  return number;
}

// Short messages lie in other sets of the cache in each of a few shuttles.
inline std::byte* SharedMemoryTransport::in_shuttle(std::uint32_t number, std::size_t bytes) const {
  constexpr std::size_t apart = 8 << 10;
  const std::size_t room = layout_.shuttle_bytes() - bytes;
  return segment_->data() + layout_.shuttle(number) +
         (bytes <= apart ? number * apart % (room / apart * apart + apart) : 0);
}

inline bool SharedMemoryTransport::has_room(Mailbox& mailbox) const {
  if (mailbox.next - mailbox.taken_seen < layout_.cells()) [[likely]]
    return true;
  // Acquire: the receiver's reads of the cell come before our writes to it.
  mailbox.taken_seen = mailbox.taken->load(std::memory_order_acquire);
  return mailbox.next - mailbox.taken_seen < layout_.cells();
}

// A collective's messages go in turn. A group's are taken in no common order: one receiver's must not fill the ring
// while another waits. The first positions are reserved, one for each receiver; the others are anyone's, in turn from
// `next_` on.
inline std::uint32_t SharedMemoryTransport::Ring::position_for(const Call& call, int receiver) const {
  if (is_collective(call)) return next_ % static_cast<std::uint32_t>(held_.size());
  const std::size_t shared = held_.size() - peers_;
  for (std::size_t i = 0; i < shared; ++i) {
    const auto position = static_cast<std::uint32_t>(peers_ + (next_ + i) % shared);
    if (first_open(position) == nullptr) return position;
  }
  return static_cast<std::uint32_t>(receiver);
}

inline SharedMemoryTransport::Mailbox* SharedMemoryTransport::Ring::first_open(std::uint32_t position) const {
  const Receiver* const receivers = &receivers_[position * peers_];
  for (std::uint32_t i = 0; i < held_[position].receivers; ++i) {
    Mailbox& mailbox = *receivers[i].mailbox;
    if (mailbox.taken_seen > receivers[i].number) continue;
    // Acquire: the receiver's reads of the payload come before its reuse.
    mailbox.taken_seen = mailbox.taken->load(std::memory_order_acquire);
    if (mailbox.taken_seen <= receivers[i].number) return &mailbox;
  }
  return nullptr;
}

inline void SharedMemoryTransport::Ring::hold(std::uint32_t position, std::uint64_t number, Mailbox* boxes,
                                              std::span<const int> to) {
  ++next_;
  may_be_open_ = true;
  held_[position].message = number;
  held_[position].receivers = static_cast<std::uint32_t>(to.size());
  Receiver* receiver = &receivers_[position * peers_];
  for (int rank : to) *receiver++ = {&boxes[rank], boxes[rank].next};
}

SharedMemoryTransport::Ring::Open SharedMemoryTransport::Ring::oldest_open() {
  Open oldest;
  for (std::uint32_t i = 0; i < held_.size(); ++i) {
    if (oldest.mailbox != nullptr && held_[i].message >= oldest.message) continue;
    if (const Mailbox* open = first_open(i)) oldest = {held_[i].message, open};
  }
  may_be_open_ = oldest.mailbox != nullptr;
  return oldest;
}

int SharedMemoryTransport::rank_of(const Mailbox& outgoing) const {
  return static_cast<int>(static_cast<std::size_t>(&outgoing - outgoing_.data()) % by_rank_.size());
}

// Into each receiver's mailbox, or once where all read it.
inline void SharedMemoryTransport::post(const Outgoing& message, Payload payload, const void* content,
                                        std::size_t content_bytes) {
  bool written = false;
  for (int rank : message.to) {
    Mailbox& mailbox = message.boxes[rank];
    if (!written) write(cell(mailbox), mailbox.next + 1, message.call, payload, message.bytes, content, content_bytes);
    written = message.to_all;
    ++mailbox.next;
    wake(*mailbox.presence);
  }
  // The receivers have the next cell's lines in their caches: fetch them for writing while there is nothing to wait
  // for.
  for (int rank : message.to_all ? message.to.first(1) : message.to) {
    const Cell* const next = cell(message.boxes[rank]);
    fetch_for_writing(next);
    if (content_bytes > sizeof next->data) behind_stamp<fetch_for_writing>(next, content_bytes);
  }
}

inline void SharedMemoryTransport::write(Cell* to, std::uint64_t stamp, const Call& call, Payload payload,
                                         std::size_t bytes, const void* content, std::size_t content_bytes) {
  // The line with the stamp last, and all of it at once: the receiver keeps looking at it, and would fetch it in
  // between.
  const auto* from = static_cast<const std::byte*>(content);
  const std::size_t beside_stamp = std::min(content_bytes, sizeof to->data);
  if (content_bytes > beside_stamp) {
    std::memcpy(to->data + beside_stamp, from + beside_stamp, content_bytes - beside_stamp);
    behind_stamp<give_away>(to, content_bytes);
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);  // keeps the compiler to this order
  to->bytes = static_cast<std::uint32_t>(bytes);
  to->payload = static_cast<std::uint32_t>(payload);
  to->call = call;
  std::memcpy(to->data, from, beside_stamp);
  // Release: everything of the message comes before its stamp.
  to->stamp.store(static_cast<std::uint32_t>(stamp), std::memory_order_release);
}

inline Payload SharedMemoryTransport::choose_payload(const Outgoing& message, const std::byte* data, bool stays,
                                                     std::optional<HeapPlace>& heap) {
  const std::size_t bytes = message.bytes;
  const std::size_t copies = message.to_all ? 1 : message.to.size();
  const bool cheap = bytes <= sizeof(Cell::data) || copies == 1 || bytes * copies <= multicast_in_cells;
  const bool shuttles = message.to.size() == 1 && !shuttles_.empty() && bytes <= layout_.shuttle_bytes();
  if (cheap && bytes <= layout_.cell_payload())
    return bytes > always_in_cell && shuttles && shuttles_.size() > left_to_long_ones ? Payload::in_shuttle
                                                                                      : Payload::in_cell;
  if (stays && in_place_.heap_from != 0 && bytes >= in_place_.heap_from && (heap = own_heap_.find(data, bytes)))
    return Payload::in_heap;
  if (stays && single_copy_from_ != 0 && bytes >= single_copy_from_ &&
      (bytes > layout_.slot_bytes() || others_can_read({data, bytes})))
    return Payload::in_sender;
  return shuttles ? Payload::in_shuttle : Payload::in_slot;
}

Attempt SharedMemoryTransport::send(int channel, std::span<const int> to, const Call& call,
                                    std::span<const std::byte> data, bool stays, bool to_all) {
  const Outgoing message{channel, &outgoing_[index(channel, 0, to_all)], to, to_all, call, data.size()};
  for (int rank : to)
    if (!has_room(message.boxes[rank])) return Attempt::later;
  std::optional<HeapPlace> heap;
  switch (choose_payload(message, data.data(), stays, heap)) {
    case Payload::in_cell: post(message, Payload::in_cell, data.data(), data.size()); break;
    case Payload::in_shuttle: send_in_shuttle(message, data.data()); break;
    case Payload::in_slot: return send_in_slot(message, data.data());
    case Payload::in_sender:
    case Payload::in_heap: return send_by_reference(message, data.data(), heap);
  }
  ++lanes_[static_cast<std::size_t>(channel)].accepted;
  return Attempt::done;
}

void SharedMemoryTransport::send_in_shuttle(const Outgoing& message, const std::byte* data) {
  const std::uint32_t number = take_shuttle(message.bytes);
  const std::uint64_t where = number;
  std::memcpy(in_shuttle(number, message.bytes), data, message.bytes);
  post(message, Payload::in_shuttle, &where, sizeof where);
}

Attempt SharedMemoryTransport::send_in_slot(const Outgoing& message, const std::byte* data) {
  Lane& lane = lanes_[static_cast<std::size_t>(message.channel)];
  const int receiver = message.to.front();
  const std::uint32_t position = lane.slots.position_for(message.call, node_rank_of(receiver));
  if (lane.slots.first_open(position) != nullptr) return Attempt::later;
  // Messages shorter than a slot take all of it in turn: a line that was in use not long ago is still in its reader's
  // cache, and would have to be fetched from there to be written again.
  const std::uint32_t offset = offset_in_slot(lane.slots, position, message.bytes);
  lane.slots.set_next_offset(position, offset + static_cast<std::uint32_t>(rounded_up(message.bytes, cache_line)));
  const std::uint64_t where = layout_.slot(me_, message.channel, position) + offset;
  staging_writer_.write(segment_->data() + where, data, message.bytes);
  ahead_ = {message.channel, receiver, message.call,
            static_cast<std::uint32_t>(std::min(message.bytes, fetched_ahead))};
  lane.slots.hold(position, lane.accepted++, message.boxes, message.to);
  post(message, Payload::in_slot, &where, sizeof where);
  return Attempt::done;
}

Attempt SharedMemoryTransport::send_by_reference(const Outgoing& message, const std::byte* data,
                                                 std::optional<HeapPlace> heap) {
  Lane& lane = lanes_[static_cast<std::size_t>(message.channel)];
  const std::uint32_t position = lane.references.position_for(message.call, node_rank_of(message.to.front()));
  if (lane.references.first_open(position) != nullptr) return Attempt::later;
  if (!heap) heap = stand_in({data, message.bytes});
  lane.references.hold(position, lane.accepted++, message.boxes, message.to);
  const auto where = reinterpret_cast<std::uint64_t>(data);
  if (heap)
    post(message, Payload::in_heap, &*heap, sizeof *heap);
  else
    post(message, Payload::in_sender, &where, sizeof where);
  return Attempt::done;
}

std::uint64_t SharedMemoryTransport::sent(int channel) {
  Lane& lane = lanes_[static_cast<std::size_t>(channel)];
  if (!lane.references.may_be_open()) return lane.accepted;
  const Ring::Open oldest = lane.references.oldest_open();
  return oldest.mailbox == nullptr ? lane.accepted : oldest.message;
}

int SharedMemoryTransport::holder(int channel, std::span<const int> to, const Call& call, bool to_all) {
  Lane& lane = lanes_[static_cast<std::size_t>(channel)];
  if (to.empty()) {
    const Mailbox* open = lane.references.oldest_open().mailbox;
    return open == nullptr ? -1 : rank_of(*open);
  }
  for (int rank : to)
    if (!has_room(outgoing_[index(channel, rank, to_all)])) return rank;
  for (const Ring* ring : {&lane.slots, &lane.references})
    if (const Mailbox* open = ring->first_open(ring->position_for(call, node_rank_of(to.front()))))
      return rank_of(*open);
  return -1;
}

Attempt SharedMemoryTransport::receive(int channel, int from, const Call& call, std::size_t bytes, std::byte* place,
                                       const std::byte** data, bool to_all) {
  Mailbox& mailbox = incoming_[index(channel, from, to_all)];
  const Cell* message = arrived(mailbox);
  if (message == nullptr) return Attempt::later;
  if (!(message->call == call) || message->bytes != bytes) [[unlikely]] {
    if (!(message->call == call)) return fail(mismatch(my_rank(), call, from, message->call));
    return fail(Status(Code::internal, fmt::format("a message of rank {} in {} has {} bytes instead of {}", from,
                                                   describe(call), std::uint32_t{message->bytes}, bytes)));
  }
  // Once a call: what `from` sent for an earlier one, and this rank never took, lies where only the other kind is
  // taken.
  if (mailbox.sequence != call.sequence && is_collective(call)) {
    mailbox.sequence = call.sequence;
    const Cell* left = arrived(incoming_[index(channel, from, !to_all)]);
    if (left != nullptr && is_of_earlier_collective(left->call, call)) [[unlikely]]
      return fail(mismatch(my_rank(), call, from, left->call));
  }
  switch (static_cast<Payload>(message->payload)) {
    case Payload::in_cell: *data = message->data; break;
    case Payload::in_slot: *data = segment_->data() + message->where; break;
    case Payload::in_shuttle: *data = in_shuttle(static_cast<std::uint32_t>(message->where), bytes); break;
    case Payload::in_sender:
    case Payload::in_heap: return read_from_sender(mailbox, from, place, data);
  }
  return Attempt::done;
}

void SharedMemoryTransport::expect(int channel, int from, bool to_all) {
  __builtin_prefetch(cell(incoming_[index(channel, from, to_all)]));
}

bool SharedMemoryTransport::has_withdrawn(const Mailbox& mailbox) {
  // Acquire: our reads of the message come before this look. If one has seen what its sender's program wrote after the
  // call, the look sees withdraw(), which came before that. The line is read by wake() anyway.
  std::atomic_thread_fence(std::memory_order_acquire);
  return mailbox.presence->withdrawn.load(std::memory_order_relaxed) != 0;
}

Attempt SharedMemoryTransport::release(int channel, int from, bool to_all) {
  Mailbox& mailbox = incoming_[index(channel, from, to_all)];
  if (has_withdrawn(mailbox)) [[unlikely]]
    if (withdrawn(mailbox, from) == Attempt::failed) return Attempt::failed;
  const Cell& message = *cell(mailbox);
  if (static_cast<Payload>(message.payload) == Payload::in_shuttle) {
    shuttles_.push_back({static_cast<std::uint32_t>(message.where), message.bytes, brought_});
    brought_ += message.bytes;
  }
  pass(mailbox);
  return Attempt::done;
}

std::byte* SharedMemoryTransport::own(int channel, int from, bool to_all) {
  const Cell& message = *cell(incoming_[index(channel, from, to_all)]);
  if (static_cast<Payload>(message.payload) != Payload::in_shuttle) return nullptr;
  return in_shuttle(static_cast<std::uint32_t>(message.where), message.bytes);
}

Attempt SharedMemoryTransport::keep(int channel, int from, bool to_all, std::uint32_t* kept) {
  Mailbox& mailbox = incoming_[index(channel, from, to_all)];
  *kept = static_cast<std::uint32_t>(cell(mailbox)->where);
  pass(mailbox);
  return Attempt::done;
}

Attempt SharedMemoryTransport::pass_on(int channel, int to, const Call& call, std::uint32_t kept, std::size_t bytes,
                                       bool to_all) {
  const Outgoing message{channel, &outgoing_[index(channel, 0, to_all)], {&to, 1}, to_all, call, bytes};
  if (!has_room(message.boxes[to])) return Attempt::later;
  const std::uint64_t where = kept;
  post(message, Payload::in_shuttle, &where, sizeof where);
  ++lanes_[static_cast<std::size_t>(channel)].accepted;
  return Attempt::done;
}

void SharedMemoryTransport::pass(Mailbox& mailbox) {
  ++mailbox.next;
  // Release: our reads of the message come before the sender's reuse of its place.
  mailbox.taken->store(mailbox.next, std::memory_order_release);
  wake(*mailbox.presence);
}

void SharedMemoryTransport::withdraw() {
  presence_->withdrawn.store(1, std::memory_order_relaxed);
  // Orders the mark before whatever the program now writes to its memory, also past the cache.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool SharedMemoryTransport::any_withdrawn() const {
  // Relaxed: whoever gave memory back after its call had failed, which was seen before, had marked itself by
  // withdraw().
  return std::ranges::any_of(peers_, [&](const NodePeer& peer) {
    return peer.rank != my_rank() &&
           incoming_[index(0, peer.rank, false)].presence->withdrawn.load(std::memory_order_relaxed) != 0;
  });
}

// What lies in the segment stays as it was sent.
Attempt SharedMemoryTransport::withdrawn(const Mailbox& mailbox, int from) {
  const Cell& message = *cell(mailbox);
  const auto payload = static_cast<Payload>(message.payload);
  if (payload != Payload::in_sender && payload != Payload::in_heap) return Attempt::done;
  Status::Detail detail;
  detail.code = Code::remote;
  detail.rank = from;
  detail.collective = title(message.call);
  detail.sequence = message.call.sequence;
  detail.message =
      fmt::format("the call of rank {} failed before its message of {} was read", from, describe(message.call));
  return fail(Status(std::move(detail)));
}

Attempt SharedMemoryTransport::progress() {
  if (ahead_.bytes == 0) return Attempt::done;
  if (ahead_.place == nullptr) {
    const Ring& slots = lanes_[static_cast<std::size_t>(ahead_.channel)].slots;
    const std::uint32_t position = slots.position_for(ahead_.call, node_rank_of(ahead_.receiver));
    ahead_.place =
        segment_->data() + layout_.slot(me_, ahead_.channel, position) + offset_in_slot(slots, position, ahead_.bytes);
  }
  for (std::uint32_t end = std::min(ahead_.bytes, ahead_.fetched + fetched_at_once); ahead_.fetched < end;
       ahead_.fetched += cache_line)
    fetch_for_writing(ahead_.place + ahead_.fetched);
  if (ahead_.fetched >= ahead_.bytes) ahead_.bytes = 0;
  return Attempt::done;
}

void SharedMemoryTransport::announce_sleep() {
  presence_->asleep.store(1, std::memory_order_relaxed);
  // Our announcement before our next looks at the mailboxes.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void SharedMemoryTransport::sleep(double microseconds) {
  const timespec time{static_cast<time_t>(microseconds / 1e6), static_cast<long>(microseconds * 1e3) % 1000000000L};
  if (microseconds > 0) syscall(SYS_futex, &presence_->asleep, FUTEX_WAIT, 1, &time, nullptr, 0);
  presence_->asleep.store(0, std::memory_order_relaxed);
}

}  // namespace paceline
