#include "cuda/memory/registration.h"

#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "cuda/driver/driver.h"

namespace paceline::cuda {
namespace {

constexpr int entries = 256;  // allocations of one rank that are known to the others
constexpr std::uint64_t not_mapped = 1;
// How long a rank that makes a graph waits for the others to do so.
constexpr auto patience = std::chrono::seconds(2);

struct Answer {
  std::atomic<std::uint64_t> id;       // of the allocation that it is about
  std::atomic<std::uint64_t> address;  // where the rank sees it
};
using HandleWords = std::array<std::uint64_t, sizeof(IpcHandle) / 8>;
// Read while it may be written: who reads looks at the number before and after.
struct Entry {
  std::atomic<std::uint64_t> id;  // 0: none, or it is being written
  std::uint64_t base;             // for its owner alone
  std::atomic<std::uint64_t> bytes;
  std::array<std::atomic<std::uint64_t>, sizeof(IpcHandle) / 8> handle;
  Answer answers[max_gpus];  // by the other ranks
};

// Relaxed: the number and the fences beside it order the words.
void put_handle(const IpcHandle& handle, Entry& into) {
  const auto words = std::bit_cast<HandleWords>(handle);
  for (std::size_t i = 0; i < words.size(); ++i) into.handle[i].store(words[i], std::memory_order_relaxed);
}
IpcHandle handle_of(const Entry& entry) {
  HandleWords words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = entry.handle[i].load(std::memory_order_relaxed);
  return std::bit_cast<IpcHandle>(words);
}

// An offer as the others read it. The ranks are in step, so of those that wait for each other none is two calls ahead.
struct OfferSlot {
  std::atomic<std::uint32_t> step;
  std::atomic<std::uint32_t> what;
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> inputs[max_gpus];
};
constexpr std::uint32_t offer_slots = 4;

// Of the socket that the others send their pieces through.
std::string door_name(const std::string& board_name) { return board_name + ".door"; }

}  // namespace

// Zeros are an empty board.
struct Registration::Board {
  std::atomic<std::uint32_t> changes;
  std::atomic<std::uint32_t> steps;  // the owner's calls of in_step
  SharedPieces::Bell bell;           // rung by the others
  std::uint64_t door_token;          // 0: there is no door
  OfferSlot offers[offer_slots];
  std::atomic<std::uint64_t> verdicts[offer_slots];  // rank 0's: a step, and in the lowest bit whether all agree
  Entry all[entries];
};

Result<std::unique_ptr<Registration>> Registration::create(int rank, int ranks, int device) {
  auto made = std::unique_ptr<Registration>(new Registration(rank, ranks, device));
  auto segment = Segment::create(sizeof(Board));
  if (!segment.ok()) return segment.status();
  made->mine_ = std::move(*segment);
  Board& board = *made->board_of(rank);
  made->pieces_ = std::make_unique<SharedPieces>(rank, ranks, board.bell);
  std::uint64_t token = 0;
  if (getrandom(&token, sizeof token, 0) != sizeof token || token == 0) return Status::system("getrandom", errno);
  auto door = HandleDoor::open(door_name(made->board_name()), token);
  if (door.ok()) {
    made->door_ = std::move(*door);
    board.door_token = token;
  } else {
    log(LogLevel::info, rank, "buffers in mapped GPU memory are copied: {}", door.status().message());
  }
  return made;
}

Registration::~Registration() {
  for (const Mapped& mapped : mapped_)
    if (mapped.address != nullptr) ipc_close(mapped.address);
  for (const Mapped& mapped : freed_) ipc_close(mapped.address);
}

const std::string& Registration::board_name() const { return mine_->name(); }

Status Registration::open(int peer, const std::string& board_name, bool here) {
  here_[static_cast<std::size_t>(peer)] = here;
  auto segment = Segment::open(board_name, sizeof(Board));
  if (!segment.ok()) return segment.status();
  boards_[static_cast<std::size_t>(peer)] = std::move(*segment);
  Board& board = *board_of(peer);
  // Of two ranks the later one goes to the other.
  if (peer > rank_ || board.door_token == 0) return {};
  auto socket = HandleDoor::enter(door_name(board_name), board.door_token, rank_);
  if (socket.ok())
    pieces_->connect(peer, std::move(*socket), board.bell);
  else
    log(LogLevel::info, rank_, "buffers in mapped GPU memory are copied: {}", socket.status().message());
  return {};
}

void Registration::settle() {
  mine_->unlink();
  if (door_ == nullptr) return;
  for (HandleDoor::Guest guest = door_->admit(); guest.rank >= 0; guest = door_->admit())
    if (guest.rank > rank_ && guest.rank < ranks_ && board_of(guest.rank) != nullptr)
      pieces_->connect(guest.rank, std::move(guest.socket), board_of(guest.rank)->bell);
  door_.reset();
}

Registration::Board* Registration::board_of(int rank) const {
  const auto& segment = rank == rank_ ? mine_ : boards_[static_cast<std::size_t>(rank)];
  return segment == nullptr ? nullptr : reinterpret_cast<Board*>(segment->data());
}

void Registration::look() {
  pieces_->look();
  let_go();
  for (int owner = 0; owner < ranks_; ++owner) {
    Board* const board = elsewhere(owner) ? board_of(owner) : nullptr;
    if (board == nullptr) continue;
    // Acquire: the entries come before the change that tells of them.
    const std::uint32_t changes = board->changes.load(std::memory_order_acquire);
    std::uint32_t& seen = seen_[static_cast<std::size_t>(owner)];
    if (changes == seen) continue;
    seen = changes;
    for (int entry = 0; entry < entries; ++entry) {
      const auto known = std::find_if(mapped_.begin(), mapped_.end(),
                                      [&](const Mapped& m) { return m.owner == owner && m.entry == entry; });
      if (known != mapped_.end()) {
        map(owner, entry, *known);
      } else if (board->all[entry].id.load(std::memory_order_relaxed) != 0) {
        map(owner, entry, mapped_.emplace_back(Mapped{owner, entry}));
      }
    }
  }
}

void Registration::map(int owner, int entry, Mapped& mapped) {
  Entry& its = board_of(owner)->all[entry];
  // Acquire: the handle comes before the number.
  const std::uint64_t id = its.id.load(std::memory_order_acquire);
  if (id == mapped.id) return;
  const IpcHandle handle = handle_of(its);
  const std::uint64_t bytes = its.bytes.load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);  // the handle is read before the number is looked at again
  const bool whole = its.id.load(std::memory_order_relaxed) == id;
  unmap(mapped);
  mapped = {owner, entry};
  if (id == 0 || !whole) return;  // a later change tells of it
  mapped.id = id;
  mapped.bytes = bytes;
  mapped.address = ipc_open(handle);
  mapped.hold = std::make_shared<char>();
  Answer& answer = its.answers[rank_];
  answer.address.store(mapped.address == nullptr ? not_mapped : reinterpret_cast<std::uint64_t>(mapped.address),
                       std::memory_order_relaxed);
  answer.id.store(id, std::memory_order_release);  // after the address
}

// At once, or when no graph loads from it any more, and no group is being launched.
void Registration::unmap(Mapped& mapped) {
  if (mapped.address != nullptr) freed_.push_back(std::move(mapped));
  let_go();
}

void Registration::let_go() {
  if (NothingCloses::here()) return;
  // Who alone has a hold stays alone: nobody else can copy it.
  std::erase_if(freed_, [](const Mapped& mapped) {
    if (mapped.hold.use_count() > 1) return false;
    ipc_close(mapped.address);
    return true;
  });
}

// A place on the board; -1: none is free. Those whose memory was freed since are taken off. On a full board one is
// looked at each time: to ask the driver about all of them takes longer than many a call.
int Registration::free_place() {
  Board& board = *board_of(rank_);
  const auto is_free = [&](Entry& entry) {
    const std::uint64_t old = entry.id.load(std::memory_order_relaxed);
    if (old == 0) return true;
    if (allocation_of(entry.base).id == old) return false;
    entry.id.store(0, std::memory_order_relaxed);
    return true;
  };
  if (full_) {
    last_looked_at_ = (last_looked_at_ + 1) % entries;
    full_ = !is_free(board.all[last_looked_at_]);
    return full_ ? -1 : last_looked_at_;
  }
  int free = -1;
  for (int place = 0; place < entries; ++place)
    if (is_free(board.all[place]) && free < 0) free = place;
  full_ = free < 0;
  return free;
}

// The place on the board of an allocation, which is put there if it is new; -1: none is free.
int Registration::entry_of(std::uint64_t base, std::uint64_t id) {
  Board& board = *board_of(rank_);
  const auto has = [&](const Entry& entry) { return entry.id.load(std::memory_order_relaxed) == id; };
  Entry* const known = std::find_if(std::begin(board.all), std::end(board.all), has);
  if (known != std::end(board.all)) return static_cast<int>(known - board.all);
  const int place = free_place();
  if (place < 0) return -1;
  IpcHandle handle;
  const Allocation allocation = allocation_of(base);
  if (!ipc_handle(base, handle)) {
    board.changes.fetch_add(1, std::memory_order_release);  // after what was taken off
    return -1;
  }
  Entry* const free = &board.all[place];
  // Release: who reads any of what follows finds the number gone when it looks again. A store orders only what comes
  // before it, also one that releases.
  std::atomic_thread_fence(std::memory_order_release);
  free->base = base;
  free->bytes.store(allocation.bytes, std::memory_order_relaxed);
  put_handle(handle, *free);
  free->id.store(id, std::memory_order_release);          // after the handle
  board.changes.fetch_add(1, std::memory_order_release);  // after the entry
  return place;
}

bool Registration::sights(const std::byte* buffer, std::uint64_t bytes, Sights& into) {
  const auto address = reinterpret_cast<std::uint64_t>(buffer);
  const Allocation allocation = allocation_of(address);
  if (!allocation.shareable) return pieces_->sights(address, bytes, into);
  std::optional<int> place;
  bool all = true;
  for (int rank = 0; rank < ranks_; ++rank) {
    std::uint64_t& sight = into[static_cast<std::size_t>(rank)];
    // The others of this process reach this rank's GPU.
    sight = rank == rank_ || (!elsewhere(rank) && allocation.device == device_) ? address : 0;
    if (elsewhere(rank) && !place)
      place = address + bytes <= allocation.base + allocation.bytes ? entry_of(allocation.base, allocation.id) : -1;
    if (elsewhere(rank) && *place >= 0) {
      Answer& answer = board_of(rank_)->all[*place].answers[rank];
      // Acquire: the address comes before the number.
      if (answer.id.load(std::memory_order_acquire) == allocation.id) {
        const std::uint64_t seen = answer.address.load(std::memory_order_relaxed);  // ordered by the number
        if (seen != not_mapped) sight = seen + (address - allocation.base);
      }
    }
    all = all && sight != 0;
  }
  return all;
}

bool Registration::in_step(const std::function<bool()>& ended) {
  // Release: what this rank did before its step comes before the others' next looks. The acquire orders nothing: no
  // other rank writes the word.
  const std::uint32_t steps = board_of(rank_)->steps.fetch_add(1, std::memory_order_acq_rel) + 1;
  const auto others_are_there = [&] {
    for (int rank = 0; rank < ranks_; ++rank) {
      const Board* const board = rank == rank_ ? nullptr : board_of(rank);
      // Acquire: what the rank did before its step comes before this one's next look.
      if (board != nullptr && !reached(board->steps.load(std::memory_order_acquire), steps)) return false;
    }
    return true;
  };
  waits_ = waits_ && std::none_of(here_.begin(), here_.end(), [](bool here) { return here; });
  const auto until = std::chrono::steady_clock::now() + patience;
  while (waits_ && !others_are_there()) {
    waits_ = std::chrono::steady_clock::now() < until && !ended();
    std::this_thread::yield();
  }
  return waits_;
}

std::optional<Registration::Agreement> Registration::agree(const Offer& mine, const std::function<bool()>& ended) {
  // Where this one offers nothing, the others find so. But they wait for its step, if it still waits for theirs.
  if (!waits_) return {};
  for (int rank = 0; rank < ranks_; ++rank)
    if (board_of(rank) == nullptr) {
      (void)in_step(ended);
      return {};
    }
  const std::uint32_t step = board_of(rank_)->steps.load(std::memory_order_relaxed) + 1;
  // Relaxed: in_step releases it all.
  OfferSlot& offer = board_of(rank_)->offers[step % offer_slots];
  offer.step.store(step, std::memory_order_relaxed);
  offer.what.store(mine.what, std::memory_order_relaxed);
  offer.count.store(mine.count, std::memory_order_relaxed);
  for (std::size_t rank = 0; rank < mine.inputs.size(); ++rank)
    offer.inputs[rank].store(mine.inputs[rank], std::memory_order_relaxed);
  bool all = in_step(ended);
  for (int rank = 0; all && rank < ranks_; ++rank) {
    const OfferSlot& its = board_of(rank)->offers[step % offer_slots];
    all = its.step.load(std::memory_order_relaxed) == step && its.what.load(std::memory_order_relaxed) == mine.what &&
          its.count.load(std::memory_order_relaxed) == mine.count;
    for (int viewer = 0; all && viewer < ranks_; ++viewer)
      all = its.inputs[viewer].load(std::memory_order_relaxed) != 0;
  }
  // One rank may have waited in vain, and another come just then: what the first says is true for all.
  std::atomic<std::uint64_t>& verdict = board_of(0)->verdicts[step % offer_slots];
  const std::uint64_t my_word = std::uint64_t{step} << 1 | (all ? 1 : 0);
  std::uint64_t said = verdict.load(std::memory_order_acquire);
  while (said >> 1 != step)
    // Who agrees has seen all offers, and so has who hears of it.
    if (verdict.compare_exchange_weak(said, my_word, std::memory_order_acq_rel)) said = my_word;
  if ((said & 1) == 0) return {};
  Agreement agreement{step, {}, {}};
  for (int rank = 0; rank < ranks_; ++rank) {
    std::uint64_t& input = agreement.inputs[static_cast<std::size_t>(rank)];
    input = board_of(rank)->offers[step % offer_slots].inputs[rank_].load(std::memory_order_relaxed);
    if (std::shared_ptr<void> hold = hold_of(rank, input)) agreement.holds.push_back(std::move(hold));
  }
  return agreement;
}

// Of the other rank's allocation that `address` lies in; none: it is no such address.
std::shared_ptr<void> Registration::hold_of(int owner, std::uint64_t address) const {
  for (const Mapped& mapped : mapped_)
    if (mapped.owner == owner && mapped.address != nullptr &&
        address - reinterpret_cast<std::uint64_t>(mapped.address) < mapped.bytes)
      return mapped.hold;
  return nullptr;
}

}  // namespace paceline::cuda
