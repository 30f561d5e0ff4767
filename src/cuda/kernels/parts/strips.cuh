// Strips: how short messages cross a link, without a flag or a barrier; the link carries nothing but the data.
//
// A message is cut into strips of 512 bytes; strip k goes through lane k % lanes. A lane is a warp on each side, and a
// ring of strips in the taker's window. A strip is blank until something comes: each of its words holds one pattern
// (window.h). The giver writes data as they are, 16 bytes a thread; the taker looks at each word's upper half until it
// is not blank any more, and makes the word blank again. Data that have that very pattern there are vouched for: behind
// them the giver writes the strip's number, and a taker that has waited for some time looks there.
//
// A taker tells how many strips it has taken when its next kernel begins, and in a long message before the ring is full
// (strip_watch.cuh). A warp moves `unroll` strips in a round.
//
// Source: the blank strips are TensorRT-LLM's and FlashInfer's "Lamport" all-reduce, which changes data that look
// blank.
#pragma once

#include "cuda/kernels/parts/clerk.cuh"
#include "cuda/kernels/parts/memory.cuh"
#include "cuda/kernels/parts/shared_word.cuh"

namespace paceline::cuda {

// 16 bytes: what a thread moves at once. Each half is written and seen in one piece.
using Pair = ulonglong2;

__device__ inline Pair peek(const Pair* pair) {
  Pair v;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(pair) : "memory");
  return v;
}
__device__ inline void post(Pair* pair, Pair v) {
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(pair), "l"(v.x), "l"(v.y) : "memory");
}
__device__ inline bool looks_blank(Pair pair) { return pair.x >> 32 == blank >> 32 || pair.y >> 32 == blank >> 32; }

// Of a lane, seen from `source`: the first strip of its ring in the owner's window. Strips of the same number lie side
// by side, for all lanes are at about the same one: far apart, they would meet on few ways into the memory.
__device__ inline std::uint64_t first_strip(const Terms& terms, int owner, int source, std::uint32_t lane) {
  return static_cast<std::uint64_t>(place_of(source, owner)) * terms.layout.ring() * terms.layout.strip_lanes + lane;
}

// ---- What few calls need, out of line: an instruction that is not in the cache costs more than the memory ----

// Stands behind a strip with this number; 0 behind none.
__device__ inline std::uint64_t vouched_number(std::uint32_t number) { return std::uint64_t{1} << 32 | number; }
template <class Task>
__device__ std::uint64_t* voucher(const Task& task, int owner, int source, std::uint32_t lane, std::uint32_t number) {
  const std::uint32_t row = (number & task.layout.ring_mask) * task.layout.strip_lanes;
  return reinterpret_cast<std::uint64_t*>(task.windows[owner] + task.layout.vouchers) +
         first_strip(task, owner, source, lane) + row;
}

// By a whole warp, which has just written the strip to the peer.
template <class Task>
__device__ __noinline__ void vouch(const Task& task, int peer, std::uint32_t lane, std::uint32_t number) {
  fence_system();  // the data come before the word that vouches for them
  __syncwarp();
  if (threadIdx.x % 32 == 0) post(voucher(task, peer, task.rank, lane, number), vouched_number(number));
}
// By a whole warp, when none of it needs the voucher any more: numbers repeat.
template <class Task>
__device__ __noinline__ void tear_up(const Task& task, int source, std::uint32_t lane, std::uint32_t number) {
  if (threadIdx.x % 32 == 0) post(voucher(task, task.rank, source, lane, number), std::uint64_t{0});
}

// A thread's wait for its pair of a strip: what came, also if it looks blank and is vouched for. After an alarm,
// anything.
template <class Task>
__device__ __noinline__ Pair wait_for_pair(const Task& task, int source, std::uint32_t lane, std::uint32_t number,
                                           const Pair* from) {
  Patience patience(task);
  // Of this block's copy, which stays until all of its warps have ended.
  const std::uint32_t taken = peek(&words(task.windows[task.rank]).numbers[blockIdx.x][source].taken);
  const Expected message = expected(task, source, taken + 1);
  const std::uint64_t* const vouched = voucher(task, task.rank, source, lane, number);
#pragma unroll 1
  for (unsigned looks = 1;; ++looks) {
    const bool real = looks % 64 == 0 && peek_acquire(vouched) == vouched_number(number);
    const Pair pair = peek(from);
    if (real || !looks_blank(pair) || !patience.more(message)) return pair;
  }
}
__device__ __noinline__ inline bool no_alarm(const Terms& terms) {
  return !is_to_end(terms, peek(&terms.alarm->abort));
}

// A thread's wait for its pair, which was blank. Returns whether it is vouched for, or there is an alarm.
template <class Task>
__device__ bool wait_here(const Task& task, int source, std::uint32_t lane, std::uint32_t number, const Pair* from,
                          Pair& pair, bool& well) {
  // A few looks here: what comes soon needs no call.
#pragma unroll 1
  for (int looks = 0; looks < 256 && looks_blank(pair); ++looks) pair = peek(from);
  if (!looks_blank(pair)) return false;
  pair = wait_for_pair(task, source, lane, number, from);
  if (!looks_blank(pair)) return false;
  well = no_alarm(task);
  return true;
}

// A whole warp's wait for a strip, of which some pair was blank. mine: whether this thread has a pair of it.
struct Came {
  Pair pair;
  bool well;
};
template <class Task>
__device__ __noinline__ Came wait_for_strip(const Task& task, int source, std::uint32_t lane, std::uint32_t number,
                                            const Pair* from, bool mine, Pair pair) {
  bool well = true;
  const bool vouched = mine && looks_blank(pair) && wait_here(task, source, lane, number, from, pair, well);
  if (__any_sync(0xffffffff, vouched)) [[unlikely]]
    tear_up(task, source, lane, number);
  return {pair, well};
}

// What the peer has freed of the lane's strips, when that are so many or there is an alarm.
struct Room {
  std::uint32_t freed;
  bool well;
};
template <class Task>
__device__ __noinline__ Room wait_for_room(const Task& task, int peer, std::uint32_t lane, std::uint32_t wanted) {
  const std::uint32_t* const freed = &words(task.windows[task.rank]).lanes[lane].freed[peer];
  Patience patience(task);
  const std::uint32_t given = peek(&words(task.windows[task.rank]).numbers[blockIdx.x][peer].given);
#pragma unroll 1
  for (;;) {
    const std::uint32_t found = peek(freed);
    if (reached(found, wanted)) return {found, true};
    if (!patience.more(peer, given + 1, task.count_to(peer))) return {found, false};
  }
}

// ---- A lane between this rank and another, as one warp sees it. All of its threads call everything ----

// A piece, and where it begins in a row of pieces: less than 4 GB from there.
struct Part {
  std::byte* row = nullptr;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
  Part() = default;
  // Registers hold it.
  __device__ explicit Part(const Piece& piece)
      : row(held(piece.data)), bytes(held(static_cast<std::uint32_t>(piece.bytes))) {}
  // The row's address stands in the kernel's argument.
  __device__ Part(const Piece& piece, std::byte* row)
      : row(row),
        offset(static_cast<std::uint32_t>(piece.data - row)),
        bytes(static_cast<std::uint32_t>(piece.bytes)) {}
  [[nodiscard]] __device__ std::byte* data() const { return row + offset; }
};

__device__ inline std::uint32_t strips_of(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + strip_bytes - 1) / strip_bytes);
}
// Of a message of so many those that go through a lane.
__device__ inline std::uint32_t strips_of_lane(std::uint32_t strips, std::uint32_t lane, std::uint32_t lanes) {
  return lane < strips ? (strips - 1 - lane) / lanes + 1 : 0;
}

// takes: what it gives and takes are of one warp, which then tells what it took before while it waits for room.
// holds: registers hold all that can be known before the kernel before this one has ended. Else, for long messages by
// many warps: what is seldom needed is worked out then, and pairs are whole.
// apart: a wait for a strip is a call of the whole warp: fewer instructions in the way of what has come, but registers
// are saved for it.
template <class Task, int unroll, bool takes = true, bool holds = true, bool apart = false>
class StripLink {
 public:
  using Pairs = Pair[unroll];

  // Touches no memory: all that can be known before the kernel before this one has ended.
  __device__ StripLink(const Task& task, int peer, std::uint32_t lane, std::uint32_t lanes)
      : task_(task),
        peer_(peer),
        lane_(held(lane)),
        begin_(lane * strip_bytes + thread() * 16),
        step_(lanes * strip_bytes),
        out_(held(this_thread_in(task.windows[peer], peer, task.rank))),
        in_(held(this_thread_in(task.windows[task.rank], task.rank, peer))),
        numbers_(holds ? held(find_numbers()) : nullptr),
        told_to_(holds ? held(find_told_to()) : nullptr),
        ended_(holds ? held(task.ended) : nullptr),
        alignment_(holds && unroll == 1 ? held(std::uint32_t{task.alignment}) : 0) {}

  // Before it gives or takes.
  __device__ void begin() {
    given_ = peek(numbers());
    taken_ = peek(numbers() + taken_words);
    freed_ = peek(numbers() + freed_words);
    well_ = peek(holds ? ended_ : task_.ended) == 0;
  }
  // Whether all that this thread has waited for has come. Who has given up gives nothing more, and waits for nothing.
  [[nodiscard]] __device__ bool is_well() const { return well_; }
  __device__ void give_up() { well_ = false; }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __device__ void end_giving() {
    if (leads()) post(numbers(), given_);
  }
  // Of strips that will be: the next kernel begins when this one has ended.
  __device__ void end_taking(std::uint32_t to_take) {
    if (leads()) post(numbers() + taken_words, taken_ + to_take);
  }
  __device__ void end_taking() {
    if (leads()) post(numbers() + taken_words, taken_);
  }

  // Whether the lane has a strip of a piece in a round.
  [[nodiscard]] __device__ bool has(std::uint32_t bytes, std::uint32_t round) const {
    return strip_at(round, 0) < bytes;
  }
  // How many it has, also where that is asked often.
  template <bool inside>
  [[nodiscard]] __device__ std::uint32_t count_of(std::uint32_t bytes, std::uint32_t round) const {
    return unroll == 1 || inside ? unroll : strips(bytes, round);
  }
  [[nodiscard]] __device__ std::uint32_t strips(std::uint32_t bytes, std::uint32_t round) const {
    std::uint32_t count = 0;
#pragma unroll
    for (int u = 0; u < unroll; ++u) count += strip_at(round, u) < bytes ? 1 : 0;
    return count;
  }
  // In how many rounds it has one of so many.
  [[nodiscard]] __device__ std::uint32_t rounds(std::uint32_t strips) const {
    return (strips_of_lane(strips, lane_, step_ / strip_bytes) + unroll - 1) / unroll;
  }

  // The first rounds, whose strips are all whole.
  [[nodiscard]] __device__ std::uint32_t whole_rounds(std::uint32_t bytes) const {
    return strips_of_lane(bytes / strip_bytes, lane_, step_ / strip_bytes) / unroll;
  }

  // ---- The rank's memory; of a round's strips those in `which`, bit by bit. inside: all of them are whole, and where
  // they begin a multiple of 16 bytes ----

  template <bool inside = false>
  __device__ void load(const std::byte* data, std::uint32_t bytes, std::uint32_t round, Pairs& pairs,
                       unsigned which = ~0u) const {
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint32_t at = place(round, u); at < bytes && (which >> u & 1) != 0)
        pairs[u] = inside  ? *reinterpret_cast<const Pair*>(data + at)
                   : holds ? load_pair(data + at, bytes - at, alignment())
                           : load_inner(data + at, at, bytes - at, task_);
  }
  template <bool inside = false>
  __device__ void store(std::byte* data, std::uint32_t bytes, std::uint32_t round, const Pairs& pairs,
                        unsigned which = ~0u) const {
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint32_t at = place(round, u); well_ && (inside || at < bytes) && (which >> u & 1) != 0) {
        if (inside)
          store_first_out(data + at, pairs[u]);
        else if (holds)
          store_pair(data + at, pairs[u], bytes - at, alignment());
        else
          store_whole(data + at, pairs[u], bytes - at, task_);
      }
  }

  // ---- The link ----

  template <bool inside = false>
  __device__ void put(std::uint32_t bytes, std::uint32_t round, const Pairs& pairs) {
    const std::uint32_t count = count_of<inside>(bytes, round);
    if (const std::uint32_t wanted = given_ + count - task_.layout.ring(); well_ && !reached(freed_, wanted)) {
      if (takes) tell();  // the peer may be waiting too
      const Room room = wait_for_room(task_, peer_, lane_, wanted);
      freed_ = room.freed;
      well_ = room.well;
    }
    unsigned blanks = 0;  // the strips, bit by bit, that look blank in this thread's pair
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (!well_ || (!inside && place(round, u) >= bytes)) continue;
      post(pair_in(out_, given_ + u), pairs[u]);
      if (looks_blank(pairs[u])) blanks |= 1U << u;
    }
    // Only a strip that is there as a whole.
    if (__any_sync(0xffffffff, blanks != 0) && __all_sync(0xffffffff, well_)) [[unlikely]]
#pragma unroll 1
      for (std::uint32_t u = 0; u < count; ++u)
        if (__any_sync(0xffffffff, (blanks >> u & 1) != 0)) vouch(task_, peer_, lane_, given_ + u);
    given_ += count;
  }

  // The strips that the peer has put, or will have put, into its ring: what is there now, and what has come.
  template <bool inside = false>
  __device__ void look(std::uint32_t bytes, std::uint32_t round, Pairs& pairs) const {
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (inside || place(round, u) < bytes) pairs[u] = peek(pair_in(in_, taken_ + u));
  }
  template <bool inside = false>
  __device__ void settle(std::uint32_t bytes, std::uint32_t round, Pairs& pairs) {
    const std::uint32_t count = count_of<inside>(bytes, round);
    bool vouched = false;
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const bool mine = well_ && (inside || place(round, u) < bytes);
      Pair* const slot = pair_in(in_, taken_ + u);
      if constexpr (!apart) {
        if (mine && looks_blank(pairs[u]))
          vouched = wait_here(task_, peer_, lane_, taken_ + u, slot, pairs[u], well_) || vouched;
      } else if (__any_sync(0xffffffff, mine && looks_blank(pairs[u]))) {
        const Came came = wait_for_strip(task_, peer_, lane_, taken_ + u, slot, mine, pairs[u]);
        pairs[u] = came.pair;
        well_ = well_ && came.well;
      }
      if (mine) post(slot, Pair{blank, blank});
    }
    if (!apart && __any_sync(0xffffffff, vouched)) [[unlikely]] {
      const unsigned which = blank_ones<inside>(bytes, round, pairs);
#pragma unroll 1
      for (std::uint32_t u = 0; u < count; ++u)
        if ((which >> u & 1) != 0) tear_up(task_, peer_, lane_, taken_ + u);
    }
    taken_ += count;
    untold_ += count;
  }

  // To the block's first warp, which watches: how many were taken since the kernel began. before: in other lanes.
  __device__ void count_in(SharedWord& taken, std::uint32_t before = 0) const {
    __syncwarp();
    if (leads()) taken.raise_to(before + untold_);
  }
  // How many strips were taken, and are blank.
  __device__ void tell() const {
    if (leads()) post(told_to(), taken_ - untold_);
  }
  // Where nobody watches: after each half of the ring.
  __device__ void free_strips() {
    if (untold_ < task_.layout.ring() / 2) return;
    fence_system();  // the strips are blank before their giver may write them again
    __syncwarp();
    untold_ = 0;
    tell();
  }

 private:
  // Words of a lane behind `given` of the same rank.
  static constexpr int taken_words = static_cast<int>((offsetof(StripLane, taken) - offsetof(StripLane, given)) / 4);
  static constexpr int freed_words = static_cast<int>((offsetof(StripLane, freed) - offsetof(StripLane, given)) / 4);

  [[nodiscard]] __device__ std::uint32_t* find_numbers() const {
    return &words(task_.windows[task_.rank]).lanes[lane_].given[peer_];
  }
  [[nodiscard]] __device__ std::uint32_t* find_told_to() const {
    return &words(task_.windows[peer_]).lanes[lane_].freed[task_.rank];
  }
  [[nodiscard]] __device__ std::uint32_t* numbers() const { return holds ? numbers_ : find_numbers(); }
  [[nodiscard]] __device__ std::uint32_t* told_to() const { return holds ? told_to_ : find_told_to(); }
  [[nodiscard]] __device__ int alignment() const {
    return holds && unroll == 1 ? static_cast<int>(alignment_) : task_.alignment;
  }
  [[nodiscard]] __device__ static unsigned thread() { return threadIdx.x % 32; }
  [[nodiscard]] __device__ static bool leads() { return thread() == 0; }

  // The strips, bit by bit, that look blank in some thread's pair; there is one. Giver and taker see the same, so that
  // no voucher is left behind: the lane's numbers come round, and it would then vouch for what has not come.
  template <bool inside>
  [[nodiscard]] __device__ unsigned blank_ones(std::uint32_t bytes, std::uint32_t round, const Pairs& pairs) const {
    unsigned which = unroll == 1 ? 1 : 0;
#pragma unroll
    for (int u = 0; u < unroll && unroll > 1; ++u)
      if (__any_sync(0xffffffff, (inside || place(round, u) < bytes) && looks_blank(pairs[u]))) which |= 1u << u;
    return which;
  }

  // Where a strip lies in a piece, bytes; and this thread's pair of it.
  [[nodiscard]] __device__ std::uint32_t strip_at(std::uint32_t round, int u) const {
    return place(round, u) - thread() * 16;
  }
  [[nodiscard]] __device__ std::uint32_t place(std::uint32_t round, int u) const {
    return (round * unroll + static_cast<unsigned>(u)) * step_ + begin_;
  }

  // This thread's pair in the lane's ring of strips in the owner's window, and in one strip of it.
  [[nodiscard]] __device__ std::byte* this_thread_in(std::byte* window, int owner, int source) const {
    return window + task_.layout.strips + first_strip(task_, owner, source, lane_) * strip_bytes + thread() * 16;
  }
  [[nodiscard]] __device__ Pair* pair_in(std::byte* ring, std::uint32_t number) const {
    return reinterpret_cast<Pair*>(ring + std::uint64_t{number & task_.layout.ring_mask} * task_.layout.strip_row);
  }
  const Task& task_;
  const int peer_;
  const std::uint32_t lane_;
  const std::uint32_t begin_;  // place of the first round's
  const std::uint32_t step_;   // from one strip to the next
  std::byte* const out_;
  std::byte* const in_;
  std::uint32_t* const numbers_;
  std::uint32_t* const told_to_;
  std::uint32_t* const ended_;
  const std::uint32_t alignment_;  // of one strip: for more there are too few registers
  // How many strips there were ever: what is loaded here is looked at only when it is needed.
  std::uint32_t given_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t freed_ = 0;   // given ones, ever, that the peer has taken
  std::uint32_t untold_ = 0;  // taken ones that the peer does not know of yet
  bool well_ = true;
};

}  // namespace paceline::cuda
