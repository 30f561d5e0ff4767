// The exchange of short messages: one kernel, no flag and no barrier; the link carries nothing but the data.
//
// A message is cut into strips of 512 bytes; strip k goes through lane k % lanes. A lane is a warp on each side, and a
// ring of strips in the taker's window. A strip is blank until something comes: each of its words holds one pattern
// (window.h). The giver writes data as they are, 16 bytes a thread; the taker looks at each word until it is not blank
// any more, and makes it blank again. Data that have that very pattern in them are vouched for: behind them the giver
// writes the strip's number, and a taker that has waited for some time looks there.
//
// A taker tells how many strips it has taken when its next kernel begins, and in a long message after each half of the
// ring. A warp moves `unroll` strips in a round, and gives a round ahead of what it takes, so that the link works while
// it folds what came before. Where everything lies is worked out before the kernel before this one has ended.
//
// Between two ranks (`two`) all that is known of the peer is in every thread's registers; else thread p of a warp knows
// what there is to know of rank p.
//
// With `relays` it goes on at once: what a rank has folded, or taken from the root, it gives to the others, in the same
// lanes (exchange.h).
//
// The first warp of each block moves no data: in the first block it is the clerk (clerk.cuh), beside the others.
//
// Time: launch + one store over the link + M/B; relayed, twice the last two.
// Source: the blank strips are TensorRT-LLM's and FlashInfer's "Lamport" all-reduce, which changes data that look
// blank; the all-pairs form is also MSCCL++'s.
#pragma once

#include "cuda/clerk.cuh"
#include "cuda/fold.cuh"
#include "cuda/memory.cuh"

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
__device__ inline bool looks_blank(Pair pair) { return pair.x == blank || pair.y == blank; }

// Of a lane, seen from `source`: the first strip of its ring in the owner's window.
__device__ inline std::uint64_t first_strip(const Terms& terms, int owner, int source, std::uint32_t lane) {
  return (static_cast<std::uint64_t>(place_of(source, owner)) * strip_lanes + lane) * terms.layout.ring;
}

// ---- What few calls need, out of line: an instruction that is not in the cache costs more than the memory ----

// Stands behind a strip with this number; 0 behind none.
__device__ inline std::uint64_t vouched_number(std::uint32_t number) { return std::uint64_t{1} << 32 | number; }
__device__ inline std::uint64_t* voucher(std::byte* window, const Terms& terms, std::uint64_t strip) {
  return reinterpret_cast<std::uint64_t*>(window + terms.layout.vouchers) + strip;
}

// By a whole warp, which has just written the strip.
__device__ __noinline__ inline void vouch(std::byte* window, const Terms& terms, std::uint64_t strip,
                                          std::uint32_t number) {
  fence_system();  // the data come before the word that vouches for them
  __syncwarp();
  if (threadIdx.x % 32 == 0) post(voucher(window, terms, strip), vouched_number(number));
}

// A thread's wait for its pair of a strip: what came, also if it looks blank and is vouched for. After an alarm,
// anything.
template <class Task>
__device__ __noinline__ Pair wait_for_pair(const Task& task, int source, std::uint64_t strip, std::uint32_t number,
                                           const Pair* from) {
  Patience patience(task);
  // Of this block's copy, which stays until all of its warps have ended.
  const std::uint32_t taken = peek(&words(task.windows[task.rank]).numbers[blockIdx.x][source].taken);
  const Expected message = expected(task, source, taken + 1);
  const std::uint64_t* const vouched = voucher(task.windows[task.rank], task, strip);
#pragma unroll 1
  for (unsigned looks = 1;; ++looks) {
    const bool real = looks % 64 == 0 && peek_acquire(vouched) == vouched_number(number);
    const Pair pair = peek(from);
    if (real || !looks_blank(pair) || !patience.more(message)) return pair;
  }
}
__device__ __noinline__ inline bool no_alarm(const Terms& terms) { return peek(&terms.alarm->abort) == 0; }

// By a whole warp, when none of it needs the voucher any more: numbers repeat.
__device__ __noinline__ inline void tear_up(std::byte* window, const Terms& terms, std::uint64_t strip) {
  if (threadIdx.x % 32 == 0) post(voucher(window, terms, strip), std::uint64_t{0});
}

// Until the peer has freed so many strips of the lane.
template <class Task>
__device__ __noinline__ bool wait_for_room(const Task& task, const std::uint32_t* freed, int peer,
                                           std::uint32_t wanted) {
  Patience patience(task);
  const std::uint32_t given = peek(&words(task.windows[task.rank]).numbers[blockIdx.x][peer].given);
#pragma unroll 1
  while (!reached(peek(freed), wanted))
    if (!patience.more(peer, given + 1)) return false;
  return true;
}

// ---- A warp's part of an exchange. All of its threads call everything ----

template <class Element, int unroll, bool relays, bool two>
class StripWarp {
  using Pairs = Pair[unroll];

 public:
  // Touches no memory: finds out where the other ranks' strips lie.
  __device__ explicit StripWarp(const Task& task)
      : task_(task),
        thread_(static_cast<int>(threadIdx.x % 32)),
        lanes_(gridDim.x * (blockDim.x / 32 - 1)),
        lane_(blockIdx.x * (blockDim.x / 32 - 1) + threadIdx.x / 32 - 1),
        whom_(two ? 1 - task.rank : thread_) {
    if (!knows_another()) return;
    out_ = ring_of(task.windows[whom_], whom_, task.rank);
    in_ = ring_of(task.windows[task.rank], task.rank, whom_);
    const Piece give = task.give(whom_);
    const Piece take = task.take(whom_);
    give_ = {give.data, static_cast<std::uint32_t>(give.bytes)};
    take_ = {take.data, static_cast<std::uint32_t>(take.bytes)};
  }

  __device__ void run() {
    StripLane& lane = words(task_.windows[task_.rank]).lanes[lane_];
    if (knows_another()) {
      given_ = peek(&lane.given[whom_]);
      taken_ = peek(&lane.taken[whom_]);
      freed_ = peek(&lane.freed[whom_]);
    }
    told_ = taken_;
    const std::uint32_t rounds = lane_ < task_.strips ? (task_.strips - 1 - lane_) / lanes_ / unroll + 1 : 0;
    // In each turn a round is given, the one before it taken, and of the one before that what others relayed.
#pragma unroll 1
    for (std::uint32_t turn = 0; turn <= rounds + (relays ? 1 : 0); ++turn) {
      if (turn < rounds) give(turn);
      if (turn == 0) {
        tell();
        continue;
      }
      if (turn <= rounds) {
        if (task_.folds)
          take_and_fold(turn - 1);
        else
          take_and_copy(turn - 1);
      }
      if (relays && turn > 1) gather(turn - 2);
      if (turn > 1) free_strips();
    }
    // What a root has of a message of which it gives parts.
    if (relays && !task_.folds)
      for (std::uint32_t round = rounds; strip(round, 0) * strip_bytes < task_.own_bytes; ++round) copy_own(round);
    if (!tells()) return;
    // After an alarm the communicator has ended, and its numbers are of no use.
    post(&lane.given[whom_], given_);
    post(&lane.taken[whom_], taken_);
  }

 private:
  struct Part {
    std::byte* data = nullptr;
    std::uint32_t bytes = 0;
  };

  [[nodiscard]] __device__ bool knows_another() const {
    return two || (thread_ < task_.ranks && thread_ != task_.rank);
  }
  // Whether this thread writes another rank's numbers.
  [[nodiscard]] __device__ bool tells() const { return two ? thread_ == 0 : knows_another(); }
  [[nodiscard]] __device__ int ranks() const { return two ? 2 : task_.ranks; }
  [[nodiscard]] __device__ int peer(int step) const {
    if (two) return 1 - task_.rank;
    const int peer = task_.rank + step;
    return peer < task_.ranks ? peer : peer - task_.ranks;
  }
  // In the order in which they give to this rank.
  [[nodiscard]] __device__ int source(int step) const {
    if (two) return 1 - task_.rank;
    return task_.rank >= step ? task_.rank - step : task_.rank - step + task_.ranks;
  }
  // What is known of a rank.
  [[nodiscard]] __device__ static std::uint32_t of(std::uint32_t known, int rank) {
    if (two) return known;
    return __shfl_sync(0xffffffff, known, rank);
  }
  [[nodiscard]] __device__ static std::byte* of(std::byte* known, int rank) {
    if (two) return known;
    return reinterpret_cast<std::byte*>(__shfl_sync(0xffffffff, reinterpret_cast<unsigned long long>(known), rank));
  }
  [[nodiscard]] __device__ static Part of(const Part& known, int rank) {
    return {of(known.data, rank), of(known.bytes, rank)};
  }

  // Strips of a message, and where this thread's pair of them lies in a piece, bytes.
  [[nodiscard]] __device__ std::uint32_t strip(std::uint32_t round, int u) const {
    return (round * unroll + static_cast<unsigned>(u)) * lanes_ + lane_;
  }
  [[nodiscard]] __device__ std::uint32_t place(std::uint32_t round, int u) const {
    return strip(round, u) * strip_bytes + static_cast<unsigned>(thread_) * 16;
  }
  // Of a piece, in a round.
  [[nodiscard]] __device__ std::uint32_t strips(std::uint32_t bytes, std::uint32_t round) const {
    std::uint32_t count = 0;
#pragma unroll
    for (int u = 0; u < unroll; ++u) count += strip(round, u) * strip_bytes < bytes ? 1 : 0;
    return count;
  }

  // A lane's ring of strips in the owner's window, and this thread's pair of a strip in it.
  [[nodiscard]] __device__ std::byte* ring_of(std::byte* window, int owner, int source) const {
    return window + task_.layout.strips + first_strip(task_, owner, source, lane_) * strip_bytes;
  }
  [[nodiscard]] __device__ Pair* pair_in(std::byte* ring, std::uint32_t number) const {
    return reinterpret_cast<Pair*>(ring + (number & (task_.layout.ring - 1)) * strip_bytes) + thread_;
  }
  [[nodiscard]] __device__ std::uint64_t strip_number(int owner, int source, std::uint32_t number) const {
    return first_strip(task_, owner, source, lane_) + (number & (task_.layout.ring - 1));
  }

  // How many strips were taken, and are blank.
  __device__ void tell() {
    if (tells()) post(&words(task_.windows[whom_]).lanes[lane_].freed[task_.rank], told_);
  }
  // In a long message: after each half of the ring.
  __device__ void free_strips() {
    const bool many = knows_another() && taken_ - told_ >= task_.layout.ring / 2;
    if (!__any_sync(0xffffffff, many)) return;
    fence_system();  // the strips are blank before their giver may write them again
    __syncwarp();
    told_ = taken_;
    tell();
  }

  __device__ void load(const std::byte* data, std::uint32_t bytes, std::uint32_t round, Pairs& pairs) const {
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint32_t at = place(round, u); at < bytes)
        pairs[u] = load_pair(data + at, bytes - at, task_.alignment);
  }
  __device__ void store(std::byte* data, std::uint32_t bytes, std::uint32_t round, const Pairs& pairs) const {
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (const std::uint32_t at = place(round, u); well_ && at < bytes)
        store_pair(data + at, pairs[u], bytes - at, task_.alignment);
  }

  __device__ void put(int to, std::uint32_t bytes, std::uint32_t round, const Pairs& pairs) {
    const std::uint32_t count = strips(bytes, round);
    const std::uint32_t number = of(given_, to);
    std::byte* const ring = of(out_, to);
    const std::uint32_t wanted = number + count - task_.layout.ring;
    if (!reached(of(freed_, to), wanted)) {
      const std::uint32_t* const freed = &words(task_.windows[task_.rank]).lanes[lane_].freed[to];
      tell();  // the peer may be waiting too
      well_ = wait_for_room(task_, freed, to, wanted) && well_;
      if (whom_ == to) freed_ = peek(freed);
    }
    bool blanks = false;
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (!well_ || place(round, u) >= bytes) continue;
      post(pair_in(ring, number + u), pairs[u]);
      blanks = blanks || looks_blank(pairs[u]);
    }
    if (__any_sync(0xffffffff, blanks))
#pragma unroll 1
      for (std::uint32_t u = 0; u < count; ++u)
        vouch(task_.windows[to], task_, strip_number(to, task_.rank, number + u), number + u);
    if (whom_ == to) given_ += count;
  }

  // The strips that a source has put, or will have put, into its ring: what is there now, and what has come.
  __device__ void look(int from, std::uint32_t bytes, std::uint32_t round, Pairs& pairs) const {
    const std::uint32_t number = of(taken_, from);
    std::byte* const ring = of(in_, from);
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (place(round, u) < bytes) pairs[u] = peek(pair_in(ring, number + u));
  }
  __device__ void settle(int from, std::uint32_t bytes, std::uint32_t round, Pairs& pairs) {
    const std::uint32_t number = of(taken_, from);
    std::byte* const ring = of(in_, from);
    bool vouched = false;
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      if (!well_ || place(round, u) >= bytes) continue;
      Pair* const slot = pair_in(ring, number + u);
      // A few looks here: what comes soon needs no call.
#pragma unroll 1
      for (int looks = 0; looks < 256 && looks_blank(pairs[u]); ++looks) pairs[u] = peek(slot);
      if (looks_blank(pairs[u])) {
        pairs[u] = wait_for_pair(task_, from, strip_number(task_.rank, from, number + u), number + u, slot);
        if (looks_blank(pairs[u])) {
          vouched = true;
          well_ = no_alarm(task_);
        }
      }
      post(slot, Pair{blank, blank});
    }
    const std::uint32_t count = strips(bytes, round);
    if (__any_sync(0xffffffff, vouched))
#pragma unroll 1
      for (std::uint32_t u = 0; u < count; ++u)
        tear_up(task_.windows[task_.rank], task_, strip_number(task_.rank, from, number + u));
    if (whom_ == from) taken_ += count;
  }

  __device__ void give(std::uint32_t round) {
#pragma unroll 1
    for (int step = 1; step < ranks(); ++step) {
      const int to = peer(step);
      const Part piece = of(give_, to);
      if (strip(round, 0) * strip_bytes >= piece.bytes) continue;
      Pairs pairs;
      load(piece.data, piece.bytes, round, pairs);
      if (task_.scales)
#pragma unroll
        for (int u = 0; u < unroll; ++u) pairs[u] = multiplied<Element>(task_, pairs[u]);
      put(to, piece.bytes, round, pairs);
    }
  }

  // In the order of the ranks. The next source's pairs are on their way while one's are folded.
  __device__ void take_and_fold(std::uint32_t round) {
    const auto bytes = static_cast<std::uint32_t>(task_.own_bytes);
    if (strip(round, 0) * strip_bytes >= bytes) return;
    const auto begin = [&](int source, Pairs& pairs) {
      if (source == task_.rank)
        load(task_.own, bytes, round, pairs);
      else
        look(source, bytes, round, pairs);
    };
    Row<Element, Pair> folded[unroll];
    const auto fold = [&](bool first, const Pairs& pairs) {
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        const auto row = Row<Element, Pair>::load(pairs[u]);
        if (first)
          folded[u] = row;
        else
          folded[u].fold(static_cast<Operation>(task_.op), row);
      }
    };
    const auto arrive = [&](int source, Pairs& pairs) {
      if (source != task_.rank)
        settle(source, bytes, round, pairs);
      else if (task_.scales)
#pragma unroll
        for (int u = 0; u < unroll; ++u) pairs[u] = multiplied<Element>(task_, pairs[u]);
    };
    if constexpr (two) {
      Pairs own;
      Pairs other;
      begin(task_.rank, own);
      begin(1 - task_.rank, other);
      arrive(task_.rank, own);
      arrive(1 - task_.rank, other);
      const bool ours = task_.rank == 0;
      Pairs second;
#pragma unroll
      for (int u = 0; u < unroll; ++u) {
        second[u] = ours ? other[u] : own[u];
        own[u] = ours ? own[u] : other[u];
      }
      fold(true, own);
      fold(false, second);
    } else {
      Pairs next;
      begin(0, next);
#pragma unroll 1
      for (int source = 0; source < ranks(); ++source) {
        Pairs pairs;
#pragma unroll
        for (int u = 0; u < unroll; ++u) pairs[u] = next[u];
        if (source + 1 < ranks()) begin(source + 1, next);
        arrive(source, pairs);
        fold(source == 0, pairs);
      }
    }
    Pairs results;
#pragma unroll
    for (int u = 0; u < unroll; ++u) results[u] = finished(task_, folded[u]);
    if (task_.target != nullptr) store(task_.target, bytes, round, results);
    relay(bytes, round, results);
  }

  __device__ void copy_own(std::uint32_t round) {
    const auto bytes = static_cast<std::uint32_t>(task_.own_bytes);
    if (strip(round, 0) * strip_bytes >= bytes) return;
    Pairs pairs;
    load(task_.own, bytes, round, pairs);
#pragma unroll
    for (int u = 0; u < unroll; ++u) pairs[u] = scaled<Element>(task_, pairs[u]);
    store(task_.target, bytes, round, pairs);
  }

  __device__ void take_and_copy(std::uint32_t round) {
    copy_own(round);
    Pairs pairs;
#pragma unroll 1
    for (int step = 1; step < ranks(); ++step) {
      const int from = source(step);
      const Part piece = of(take_, from);
      if (strip(round, 0) * strip_bytes >= piece.bytes) continue;
      look(from, piece.bytes, round, pairs);
      settle(from, piece.bytes, round, pairs);
      store(piece.data, piece.bytes, round, pairs);
      relay(piece.bytes, round, pairs);
    }
  }

  __device__ void relay(std::uint32_t bytes, std::uint32_t round, const Pairs& pairs) {
    if constexpr (relays) {
#pragma unroll 1
      for (int step = 1; step < ranks(); ++step)
        if (const int to = peer(step); (task_.relays >> to & 1) != 0) put(to, bytes, round, pairs);
    }
  }

  __device__ void gather(std::uint32_t round) {
#pragma unroll 1
    for (int step = 1; step < ranks(); ++step) {
      const int from = source(step);
      const Piece piece = task_.gathered.of(from);
      const auto bytes = static_cast<std::uint32_t>(piece.bytes);
      if (strip(round, 0) * strip_bytes >= bytes) continue;
      Pairs pairs;
      look(from, bytes, round, pairs);
      settle(from, bytes, round, pairs);
      store(piece.data, bytes, round, pairs);
    }
  }

  const Task& task_;
  const int thread_;
  const std::uint32_t lanes_;
  const std::uint32_t lane_;
  const int whom_;  // the rank that this thread knows
  // Of that rank: the rings of the lane, the pieces, and how many strips there were ever.
  std::byte* out_ = nullptr;
  std::byte* in_ = nullptr;
  Part give_;
  Part take_;
  std::uint32_t given_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t freed_ = 0;
  std::uint32_t told_ = 0;
  bool well_ = true;
};

template <class Element, int unroll, bool relays, bool two>
__global__ void __launch_bounds__((strip_warps(unroll) + 1) * 32, 1) exchange_short(const __grid_constant__ Task task) {
  const bool clerk = threadIdx.x < 32;
  WarpNumbers numbers;
  if (clerk) {
    wait_for_kernel_before();
    if (went_direct(task)) return;
    numbers = WarpNumbers(task);
    if (blockIdx.x == 0) {
      announce(task, numbers);
      compare_calls(task, numbers);
    }
  } else {
    StripWarp<Element, unroll, relays, two> warp(task);
    wait_for_kernel_before();
    if (went_direct(task)) return;
    warp.run();
  }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __syncthreads();
  if (clerk) move_on(task, numbers, 0, 1);
}

}  // namespace paceline::cuda
