// The exchange of short messages: one kernel, by strips (strips.cuh).
//
// A warp serves one peer in one lane: it gives to it and takes from it. The warps of a lane, one for each peer, are a
// group; what they take for a fold they put together in shared memory, where one of them folds it in the order of the
// ranks. In a long message a warp gives a round ahead of what it takes, so that the link works while it folds what came
// before. Where everything lies is worked out before the kernel before this one has ended.
//
// With `relays` it goes on at once: what a rank has folded, or taken from the root, it gives to the others, in the same
// lanes (exchange.h).
//
// The first warp of each block moves no data: it watches those that move rounds (strip_watch.cuh), and in the first
// block it is the clerk (clerk.cuh), beside the others.
//
// Time: launch + one store over the link + M/B; relayed, twice the last two.
// Source: the all-pairs form is also MSCCL++'s.
#pragma once

#include "cuda/kernels/parts/clerk.cuh"
#include "cuda/kernels/parts/strip_watch.cuh"
#include "cuda/kernels/parts/twos.cuh"

namespace paceline::cuda {

// What the warps of a block have of a round, for even and odd rounds: of each group all ranks' strips. A warp that has
// come to the next round's barrier has read what it needs of this one.
template <Stride stride>
struct Gathered {
  static constexpr int rounds = stride.once ? 1 : 2;
  static constexpr int most = strip_warps(stride, false) / 2 * 3;  // three ranks: groups of two warps
  Pair pairs[rounds][most][stride.strips][32];
};

// A warp's part. All of its threads call everything. Element: of what is folded; void where nothing is.
template <class Element, Stride stride, bool relays, bool two>
class ExchangeWarp {
  static constexpr int unroll = stride.strips;
  static constexpr bool once = stride.once;
  static_assert(!once || !relays);
  static constexpr bool folds = !std::is_void_v<Element>;
  // In rounds, what comes is looked for before more is given: a multiprocessor's stores to a peer hold up its loads. Of
  // four strips at once that costs more than it saves.
  static constexpr bool looks_first = !once && unroll < deep_stride.strips;
  // Measured: of two ranks, for which there are as many warps as the link then wants (exchange.cc); of more where they
  // fold and relay nothing. What is only moved or is relayed waits for the link, and comes no sooner.
  static constexpr bool has_inner_turns = !once && (two || (folds && !relays));
  using Link = StripLink<Task, unroll, once, once, !once && two>;
  using Pairs = typename Link::Pairs;
  static constexpr unsigned all = (1u << unroll) - 1;

 public:
  // Touches no memory: finds out where the other rank's strips lie. taken: of the block's warps that move data.
  __device__ ExchangeWarp(const Task& task, Gathered<stride>* together, SharedWord* taken)
      : task_(task),
        peers_(two ? 1 : task.ranks - 1),
        warp_(static_cast<int>(threadIdx.x / 32) - 1),
        group_(two ? warp_ : warp_ / peers_),
        place_(two ? 0 : warp_ % peers_),
        peer_(two                  ? 1 - task.rank
              : place_ < task.rank ? place_
                                   : place_ + 1),
        link_(task, peer_, blockIdx.x * groups() + static_cast<unsigned>(group_), gridDim.x * groups()),
        rounds_(once ? 1 : held(link_.rounds(task.strips))),
        turns_(once ? held(turns_once()) : 0),
        turn_(static_cast<std::uint32_t>(place_)),
        own_(part({const_cast<std::byte*>(task.own), task.own_bytes}, const_cast<std::byte*>(task.own))),
        give_(part(task.give(peer_), task.gives.data)),
        take_(folds ? Part() : part(task.take(peer_), task.takes.data)),
        gathered_(relays ? part(task.gathered.of(peer_), task.gathered.data) : Part()),
        target_(once ? held(task.target) : task.target),
        ranks_(static_cast<int>(once ? held(std::uint32_t{task.ranks}) : task.ranks)),
        op_(static_cast<Operation>(once ? held(std::uint32_t{task.op}) : task.op)),
        gathered_strips_(together == nullptr ? 0 : held(place_in(together))),
        taken_(taken[warp_]),
        is_watched_(!once && strips_to_tell(rounds_ * unroll * (relays ? 2 : 1), task.layout.ring()) != 0),
        inner_turns_(once ? 0 : held(inner_turns())) {}

  // Whether it has a place in a lane; in a block of any size some warps may not.
  [[nodiscard]] __device__ bool has_part() const { return static_cast<unsigned>(group_) < groups(); }

  __device__ void run() {
    // The numbers and the rank's own memory are on their way together.
    link_.begin();
    Pairs given;
    Pairs own;
    link_.load(give_.data(), give_.bytes, 0, given);
    if constexpr (once)
      move_all(given, own);
    else
      move_rounds(given, own);
    // What a root has of a message of which it gives parts.
    if (relays && !folds)
#pragma unroll 1
      for (std::uint32_t round = rounds_; link_.has(own_.bytes, round); ++round) {
        load_own(round, own);
        keep_own(round, own);
        end_turn(round);
      }
    if (!once) link_.end_giving();
  }

 private:
  // Of the row that begins there.
  static __device__ Part part(const Piece& piece, std::byte* row) { return once ? Part(piece) : Part(piece, row); }

  // Without a loop: for short messages the instructions are the time it takes.
  __device__ void move_all(Pairs& given, Pairs& own) {
    load_own(0, own);
    if (link_.has(give_.bytes, 0)) {
      scale(given);
      link_.put(give_.bytes, 0, given);
    }
    link_.tell();
    // Nothing is left to do at the end.
    link_.end_giving();
    link_.end_taking(link_.strips(coming_bytes(), 0));
    Pairs none;
    take(0, own, none);
  }
  // In each turn a round is given, the one before it taken, and of the one before that what the peer relayed. What is
  // given next is loaded meanwhile.
  __device__ void move_rounds(Pairs& given, Pairs& own) {
    Pairs looked;
#pragma unroll 1
    for (std::uint32_t turn = 0; turn <= rounds_ + (relays ? 1 : 0); ++turn)
      if (has_inner_turns && turn - 1 < inner_turns_)
        move_turn<true>(turn, given, own, looked);
      else
        move_turn<false>(turn, given, own, looked);
  }
  // inside: all strips of this turn are whole, so there is no edge to look for; and it is not the first.
  template <bool inside>
  __device__ void move_turn(std::uint32_t turn, Pairs& given, Pairs& own, Pairs& looked) {
    if (looks_first && (inside || (turn != 0 && turn <= rounds_))) {
      link_.template look<inside>(coming_bytes(), turn - 1, looked);
      load_own<inside>(turn - 1, own);
    }
    if (has<inside>(give_.bytes, turn) && (inside || turn < rounds_)) {
      scale(given);
      link_.template put<inside>(give_.bytes, turn, given);
      link_.template load<inside>(give_.data(), give_.bytes, turn + 1, given);
    }
    if (!inside && turn == 0) return;
    if (inside || turn <= rounds_) {
      if (!looks_first) load_own<inside>(turn - 1, own);
      take<inside>(turn - 1, own, looked);
      end_turn(turn - 1);
    }
    if (relays && turn > 1) take_relayed<inside>(turn - 2);
    if (is_watched_) link_.count_in(taken_);
  }
  // From the second one on.
  [[nodiscard]] __device__ std::uint32_t inner_turns() const {
    if (!has_inner_turns || task_.alignment != 16) return 0;
    std::uint32_t turns = rounds_;
    // The round behind is loaded as if it were whole: its pairs must be.
    const std::uint32_t ahead = task_.whole ? 1 : 2;
    if (give_.bytes != 0) turns = min(turns, max(link_.whole_rounds(give_.bytes), ahead) - ahead);
    if (coming_bytes() != 0) turns = min(turns, link_.whole_rounds(coming_bytes()));
    if (!folds && own_.bytes != 0) turns = min(turns, link_.whole_rounds(own_.bytes));
    if (relays && gathered_.bytes != 0) turns = min(turns, link_.whole_rounds(gathered_.bytes) + 1);
    return turns;
  }
  // Whether the lane has a strip of a piece.
  template <bool inside>
  [[nodiscard]] __device__ bool has(std::uint32_t bytes, std::uint32_t round) const {
    return inside ? bytes != 0 : link_.has(bytes, round);
  }

  [[nodiscard]] __device__ unsigned groups() const { return (blockDim.x / 32 - 1) / static_cast<unsigned>(peers_); }
  // What is done once for a strip is done by each warp of the group in turn: for which of a round's strips by this one,
  // bit by bit.
  [[nodiscard]] __device__ unsigned turns_once() const {
    unsigned turns = 0;
#pragma unroll
    for (int u = 0; u < unroll; ++u) turns |= u % peers_ == place_ ? 1u << u : 0;
    return turns;
  }
  [[nodiscard]] __device__ unsigned turns(std::uint32_t round) const {
    if (two) return all;
    if (once) return turns_;
    return round == turn_ ? all : 0;
  }
  // Of a round's strips nothing is left to do.
  __device__ void end_turn(std::uint32_t round) {
    if (!two && !once && round == turn_) turn_ += static_cast<unsigned>(peers_);
  }
  [[nodiscard]] __device__ bool relays_to_peer() const { return relays && (task_.relays >> peer_ & 1) != 0; }

  __device__ void scale(Pairs& pairs) const {
    if constexpr (folds) {
      if (!task_.scales) return;
#pragma unroll
      for (int u = 0; u < unroll; ++u) pairs[u] = multiplied<Element>(task_, pairs[u]);
    }
  }
  template <bool inside = false>
  __device__ void load_own(std::uint32_t round, Pairs& pairs) const {
    link_.template load<inside>(own_.data(), own_.bytes, round, pairs, turns(round));
  }
  template <bool inside = false>
  __device__ void keep_own(std::uint32_t round, Pairs& pairs) const {
    if (turns(round) == 0 || !has<inside>(own_.bytes, round)) return;
    scale(pairs);
    link_.template store<inside>(target_, own_.bytes, round, pairs, turns(round));
  }
  // Of what the peer gives.
  [[nodiscard]] __device__ std::uint32_t coming_bytes() const { return folds ? own_.bytes : take_.bytes; }
  // looked: what is there of it, where that was looked for already.
  template <bool inside = false>
  __device__ void take(std::uint32_t round, Pairs& own, Pairs& looked) {
    if constexpr (folds)
      take_and_fold<inside>(round, own, looked);
    else
      take_and_copy<inside>(round, own, looked);
  }

  // A rank's strips of a round, among those of the group.
  __device__ Pair* strips_of(int rank, std::uint32_t round) const {
    constexpr unsigned pair = sizeof(Pair);
    const unsigned half = once ? 0 : round & 1;
    const unsigned index = half * Gathered<stride>::most + static_cast<unsigned>(rank);
    return static_cast<Pair*>(__cvta_shared_to_generic(gathered_strips_ + index * unroll * 32 * pair));
  }
  __device__ std::uint32_t place_in(Gathered<stride>* together) const {
    return static_cast<std::uint32_t>(
        __cvta_generic_to_shared(&together->pairs[0][group_ * (peers_ + 1)][0][threadIdx.x % 32]));
  }
  __device__ void show(int rank, std::uint32_t round, const Pairs& pairs, unsigned which = all) const {
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if ((which >> u & 1) != 0) strips_of(rank, round)[u * 32] = pairs[u];
  }
  static constexpr int of_rank = unroll * 32;  // pairs
  static __device__ void see(const Pair* strips, Pairs& pairs) {
#pragma unroll
    for (int u = 0; u < unroll; ++u) pairs[u] = strips[u * 32];
  }
  // The group's warps have shown what they have. Where it is relayed, none gives what another has not got.
  __device__ void meet() {
    if constexpr (!relays) {
      asm volatile("bar.sync %0, %1;" ::"r"(group_ + 1), "r"(peers_ * 32) : "memory");
    } else {
      std::uint32_t all_well;
      asm volatile(
          "{\n"
          ".reg .pred well;\n"
          "setp.ne.u32 well, %1, 0;\n"
          "bar.red.and.pred well, %2, %3, well;\n"
          "selp.u32 %0, 1, 0, well;\n"
          "}\n"
          : "=r"(all_well)
          : "r"(link_.is_well() ? 1u : 0u), "r"(group_ + 1), "r"(peers_ * 32)
          : "memory");
      if (all_well == 0) link_.give_up();
    }
  }

  // In the order of the ranks.
  template <bool inside>
  __device__ void take_and_fold(std::uint32_t round, Pairs& own, Pairs& looked) {
    const std::uint32_t bytes = own_.bytes;
    if (!has<inside>(bytes, round)) return;
    Pairs here;
    Pairs& other = looks_first ? looked : here;
    if (!looks_first) link_.template look<inside>(bytes, round, other);
    if (turns(round) != 0) scale(own);
    if constexpr (!two) show(task_.rank, round, own, turns(round));
    link_.template settle<inside>(bytes, round, other);
    Pairs results;
    if constexpr (two) {
#pragma unroll
      for (int u = 0; u < unroll; ++u)
        results[u] = fold_of_two<Element>(op_, task_.divides != 0, own[u], other[u]);  // which is first is the same
    } else {
      const unsigned wanted = relays_to_peer() ? all : turns(round);
      Row<Element, Pair> folded[unroll];
      const auto fold = [&](bool first, const Pairs& pairs) {
#pragma unroll
        for (int u = 0; u < unroll; ++u) {
          if ((wanted >> u & 1) == 0) continue;
          const auto row = Row<Element, Pair>::load(pairs[u]);
          if (first)
            folded[u] = row;
          else
            folded[u].fold(op_, row);
        }
      };
      show(peer_, round, other);
      meet();
      if (wanted == 0) return;
      const Pair* strips = strips_of(0, round);
      see(strips, own);
      see(strips + of_rank, other);
      fold(true, own);
      fold(false, other);
#pragma unroll 1
      for (int rank = 2; rank < ranks_; ++rank) {
        see(strips + rank * of_rank, own);
        fold(false, own);
      }
#pragma unroll
      for (int u = 0; u < unroll; ++u)
        if ((wanted >> u & 1) != 0) results[u] = finished(task_, folded[u]);
    }
    if (target_ != nullptr) link_.template store<inside>(target_, bytes, round, results, turns(round));
    if (relays_to_peer()) link_.template put<inside>(bytes, round, results);
  }

  template <bool inside>
  __device__ void take_and_copy(std::uint32_t round, Pairs& own, Pairs& looked) {
    keep_own<inside>(round, own);
    Pairs here;
    Pairs& pairs = looks_first ? looked : here;
    if (has<inside>(take_.bytes, round)) {
      if (!looks_first) link_.template look<inside>(take_.bytes, round, pairs);
      link_.template settle<inside>(take_.bytes, round, pairs);
      link_.template store<inside>(take_.data(), take_.bytes, round, pairs);
    }
    if (relays && task_.relays != 0) relay_taken(round, pairs);
  }
  // What is relayed comes from one rank.
  __device__ void relay_taken(std::uint32_t round, Pairs& pairs) {
    const auto bytes = static_cast<std::uint32_t>(task_.takes.length);
    if (!link_.has(bytes, round)) return;
    const int source = __ffs(static_cast<int>(task_.takes.ranks)) - 1;
    if (peer_ == source) show(source, round, pairs);
    meet();
    if (!relays_to_peer()) return;
    see(strips_of(source, round), pairs);
    link_.put(bytes, round, pairs);
  }

  template <bool inside>
  __device__ void take_relayed(std::uint32_t round) {
    if (!has<inside>(gathered_.bytes, round)) return;
    Pairs pairs;
    link_.template look<inside>(gathered_.bytes, round, pairs);
    link_.template settle<inside>(gathered_.bytes, round, pairs);
    link_.template store<inside>(gathered_.data(), gathered_.bytes, round, pairs);
  }

  const Task& task_;
  const int peers_;
  const int warp_;   // of those that move data
  const int group_;  // of the warps of a lane
  const int place_;  // in it
  const int peer_;
  Link link_;
  const std::uint32_t rounds_;
  const unsigned turns_;
  std::uint32_t turn_;  // the next round whose strips this warp does once
  const Part own_;
  const Part give_;
  const Part take_;
  const Part gathered_;
  // Of the task, for what comes behind the wait for the peers: a field costs its way from the constants' cache.
  std::byte* const target_;
  const int ranks_;
  const Operation op_;
  const std::uint32_t gathered_strips_;  // address in shared memory, of this thread's pair of the group's first strip
  SharedWord& taken_;
  const bool is_watched_;  // watch_until_end does anything
  const std::uint32_t inner_turns_;
};

// Of a block, in which warps put something together.
template <Stride stride, bool meets>
__device__ Gathered<stride>* gathered_in_block() {
  if constexpr (!meets) {
    return nullptr;
  } else {
    __shared__ Gathered<stride> shared;
    return &shared;
  }
}

// What a thread of a block's first warp watches, whose other warps are ExchangeWarps that move rounds.
template <bool folds, bool relays, bool two>
__device__ WatchedLane watch(const Task& task) {
  const unsigned peers = two ? 1u : task.ranks - 1u;
  const unsigned groups = (blockDim.x / 32 - 1) / peers;
  const unsigned group = threadIdx.x / peers;
  if (group >= groups) return {};
  const int place = static_cast<int>(threadIdx.x % peers);
  const int source = place < task.rank ? place : place + 1;
  const std::uint32_t lane = blockIdx.x * groups + group;
  const auto strips = [&](std::uint64_t bytes) { return strips_of_lane(strips_of(bytes), lane, gridDim.x * groups); };
  const std::uint32_t relayed = relays ? strips(task.gathered.of(source).bytes) : 0;
  return {task, source, lane, strips(folds ? task.own_bytes : task.take(source).bytes) + relayed};
}

// strips, once: the Stride, which nvcc does not take as a kernel's argument.
template <class Element, int strips, bool once, bool relays, bool two>
__global__ void __launch_bounds__((strip_warps({strips, once}, two) + 1) * 32, 1)
    exchange_short(const __grid_constant__ Task task) {
  constexpr Stride stride{strips, once};
  constexpr bool folds = !std::is_void_v<Element>;
  const bool clerk = threadIdx.x < 32;
  // The next kernel does not wait on the multiprocessors for a long one.
  const bool overlaps = task.strips <= overlapped_strips;
  WarpNumbers numbers;
  WatchedLane watched;
  __shared__ SharedWord taken[strip_warps(stride, two)];
  fetch(task);
  if (!once) {
    if (threadIdx.x < strip_warps(stride, two)) taken[threadIdx.x].clear();
    __syncthreads();
  }
  if (clerk) {
    numbers = WarpNumbers(task);
    if (!once) watched = watch<folds, relays, two>(task);
    wait_for_kernel_before();
    if (overlaps) let_next_kernel_start();
    numbers.read();
    if (!once) watched.begin();
    if (blockIdx.x == 0) announce(task, numbers);
    move_unread_on(task, numbers);
    if (!once) watch_until_end(watched, taken, task.layout.ring());
    if (blockIdx.x == 0) compare_calls(task, numbers);
  } else {
    constexpr bool meets = !two && (relays || folds);
    ExchangeWarp<Element, stride, relays, two> warp(task, gathered_in_block<stride, meets>(), taken);
    wait_for_kernel_before();
    if (overlaps) let_next_kernel_start();
    warp.run();
  }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __syncthreads();
  if (!overlaps) let_next_kernel_start();
  if (!clerk) return;
  if (!once) watched.end();
  numbers.move_on_here();
  __syncwarp();
  sign_off(task);
}

}  // namespace paceline::cuda
