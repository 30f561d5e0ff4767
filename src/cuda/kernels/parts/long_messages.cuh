// The long messages of a group, each of which waits for its other side alone.
//
// The sender offers its piece where it lies, and the receiver loads it from there. If the receiver does not see it, it
// comes through the window, in chunks; the receiver learns which from the offer. Either way it tells the sender, block
// by block, when it has no more use for the offer.
//
// Where a rank has several messages it goes on with any one that can: what is offered, a chunk that has come, a chunk
// for which there is room.
#pragma once

#include "cuda/kernels/parts/giving.cuh"
#include "cuda/kernels/parts/sights.cuh"
#include "cuda/kernels/parts/taking.cuh"

namespace paceline::cuda {

// A warp of each block.
__device__ inline void make_offers(const MessageTask& task, const WarpNumbers& numbers) {
  const int peer = static_cast<int>(threadIdx.x) % 32;
  if ((task.offers_to >> peer & 1) != 0) tell_sight(task, peer, numbers.given() + 1, 0, task.offers[peer]);
}

// The first warp of each block, at the end: until then the pieces must stay as they are. Who gives up takes its offer
// back, for what lies there is the program's again: a receiver that comes later waits for it in the window, in vain.
__device__ inline void await_loads(const MessageTask& task, const WarpNumbers& numbers) {
  const int peer = static_cast<int>(threadIdx.x) % 32;
  if ((task.offers_to >> peer & 1) == 0) return;
  WindowWords& mine = words(task.windows[task.rank]);
  if (blockIdx.x == 0 && task.offers[peer] != 0) atomicAdd(&mine.direct_calls, 1ull);
  const std::uint32_t number = numbers.given() + 1;
  Patience patience(task);
  while (peek_acquire(&mine.loaded[peer][blockIdx.x]) != number)
    if (!patience.more(peer, number, task.count_to(peer))) {
      tell_sight(task, peer, number, 0, 0);
      break;
    }
}

// ---- Taking, by a group of 128 threads for each lane ----

// What a thread of a group's first warp knows of the message from its source.
class Incoming {
 public:
  __device__ Incoming(const MessageTask& task, LargeShared& shared, const WarpNumbers& numbers, const Group& group)
      : task_(task),
        shared_(shared),
        source_(group.thread),
        lane_(first_lane() + static_cast<std::uint32_t>(group.lane)),
        lane_of_block_(group.lane),
        number_(numbers.taken() + 1),
        expected_(source_ < max_gpus && (task.offers_from >> source_ & 1) != 0),
        message_(expected(task, expected_ ? source_ : task.rank, number_)),
        patience_(task) {}

  // The whole warp. A thread whose source's turn it is has written `turn`; none: no source is left.
  __device__ bool next(TakingTurn& turn) {
#pragma unroll 1
    for (;;) {
      bool well = true;
      if (expected_) look_for_offer(well);
      const bool can = from_ != nullptr || (through_window_ && look_for_chunk());
      const bool waits = expected_ || through_window_;
      if (const std::uint32_t ready = __ballot_sync(0xffffffff, can); ready != 0) {
        if (from_ != nullptr) fence_system();  // what is offered is as it was then
        if (source_ == __ffs(static_cast<int>(ready)) - 1) turn = {source_, from_, round_};
        return true;
      }
      if (__ballot_sync(0xffffffff, waits) == 0) return false;
      if (__any_sync(0xffffffff, !well || (waits && !patience_.more(message_)))) {
        shared_.failed.raise_to(1);
        return false;
      }
    }
  }
  // The thread whose source's turn it was, when its group has done it.
  __device__ void done() {
    patience_.renew();
    if (from_ != nullptr) {
      from_ = nullptr;
      settle(true);
    } else {
      ++round_;
      post(&words(task_.windows[source_]).freed[task_.rank][lane_], before() + round_);
    }
  }
  // At the end: for the next kernel.
  __device__ void count() { post(&words(task_.windows[task_.rank]).chunks_taken[source_][lane_], before() + round_); }

 private:
  [[nodiscard]] __device__ std::uint32_t before() const { return shared_.chunks_taken[source_][lane_of_block_]; }

  // Only where the other side's call is this one's.
  __device__ void look_for_offer(bool& well) {
    const Sight sight = look_at_sight(task_, source_, number_, 0);
    const Announcement told = peek(message_.announced);
    if (sight.number != number_ || !reached(told.number, number_)) return;
    expected_ = false;
    patience_.renew();
    well = same_call(task_, message_, told);
    if (!well) return;
    from_ = sight.address;
    through_window_ = from_ == nullptr;
    if (through_window_) settle(false);
  }
  __device__ bool look_for_chunk() {
    if (chunk_of(task_.takes[source_], task_.take_cuts[source_], lane_, round_).bytes == 0) {
      through_window_ = false;
      return false;
    }
    return reached(peek_acquire(&words(task_.windows[task_.rank]).ready[source_][lane_]), before() + round_ + 1);
  }
  // The last group of the block tells the sender.
  __device__ void settle(bool was_loaded) {
    __threadfence_block();
    if (atomicAdd(&shared_.settled[source_], 1u) + 1 != lanes_in_block) return;
    fence_system();  // after all loads
    post(&words(task_.windows[source_]).loaded[task_.rank][blockIdx.x], number_);
    if (was_loaded) check_sight(task_, message_);
    if (blockIdx.x == 0 && was_loaded) atomicAdd(&words(task_.windows[task_.rank]).direct_calls, 1ull);
  }

  const MessageTask& task_;
  LargeShared& shared_;
  const int source_;
  const std::uint32_t lane_;
  const int lane_of_block_;
  const std::uint32_t number_;
  bool expected_;  // the offer has not come
  bool through_window_ = false;
  const std::byte* from_ = nullptr;
  std::uint32_t round_ = 0;
  const Expected message_;
  Patience patience_;
};

template <class Element>
__device__ void take_messages(const MessageTask& task, LargeShared& shared, const WarpNumbers& numbers,
                              const Group& group) {
  constexpr std::uint32_t tile = 16 << 10;  // what a group moves at once
  const std::uint64_t lane = first_lane() + static_cast<std::uint32_t>(group.lane);
  const std::uint64_t lanes = std::uint64_t{gridDim.x} * lanes_in_block;
  const auto copy = [&](std::byte* to, const std::byte* from, std::uint64_t bytes, bool own) {
#pragma unroll 1
    for (std::uint64_t at = lane * tile; at < bytes; at += lanes * tile)
      copy_chunk<Element>(task, group, to + at, from + at,
                          static_cast<std::uint32_t>(min(bytes - at, std::uint64_t{tile})), own);
  };
  copy(task.target, task.own, task.own_bytes, true);  // what it sends to itself
  const bool leads = group.thread < 32;
  Incoming incoming(task, shared, numbers, group);
  TakingTurn& turn = shared.taking_turns[group.lane];
#pragma unroll 1
  for (;;) {
    if (leads && !incoming.next(turn) && group.thread == 0) turn.source = no_rank;
    group.together();
    const TakingTurn now = turn;
    if (now.source == no_rank) break;
    const Piece& piece = task.takes[now.source];
    if (now.from != nullptr) {
      copy(piece.data, now.from, piece.bytes, false);
    } else {
      const Chunk chunk = chunk_of(piece, task.take_cuts[now.source], static_cast<std::uint32_t>(lane), now.round);
      const std::uint32_t number = shared.chunks_taken[now.source][group.lane] + now.round;
      copy_chunk<Element>(task, group, piece.data + chunk.offset,
                          chunk_slot(task, task.rank, now.source, group.lane, number), chunk.bytes, false);
    }
    group.together();
    if (group.thread == now.source) incoming.done();
  }
  if (group.thread < task.ranks) incoming.count();
}

// ---- Giving to several through the window, by 128 threads ----

// How many messages go through the window.
__device__ inline int window_gives(const MessageTask& task) {
  int count = 0;
  for (int peer = 0; peer < task.ranks; ++peer)
    if (task.give(peer).bytes != 0 && task.give_cuts[peer].chunk != 0) ++count;
  return count;
}

template <class Element>
__device__ void give_messages(const MessageTask& task, LargeShared& shared) {
  const auto together = [] { asm volatile("bar.sync 1, 128;" ::: "memory"); };
  const int thread = static_cast<int>(threadIdx.x);
  // A thread of the first warp looks after a peer: its next chunk is that of this lane and round.
  const int mine = thread < task.ranks && thread != task.rank ? thread : no_rank;
  int lane = 0;
  std::uint32_t round = 0;
  const auto chunk = [&](int peer, int of_lane, std::uint32_t of_round) {
    return chunk_of(task.give(peer), task.give_cuts[peer], first_lane() + static_cast<std::uint32_t>(of_lane),
                    of_round);
  };
  Patience patience(task);
#pragma unroll 1
  for (;;) {
    if (thread < 32) {
      // The first lane of a block is the last to run out of chunks.
      const bool left = mine != no_rank && chunk(mine, lane, round).bytes != 0;
      GivingTurn turn{no_rank, 0, 0};
#pragma unroll 1
      while (__any_sync(0xffffffff, left)) {
        const bool room = left && reached(peek_freed(task, mine, lane),
                                          shared.chunks_given[mine][lane] + round + 1 - task.layout.chunk_slots);
        const std::uint32_t ready = __ballot_sync(0xffffffff, room);
        if (ready != 0) {
          const int chosen = __ffs(static_cast<int>(ready)) - 1;
          turn = {chosen, __shfl_sync(0xffffffff, lane, chosen), __shfl_sync(0xffffffff, round, chosen)};
          break;
        }
        const bool gives_up = left && (shared.failed.look() != 0 ||
                                       !patience.more(mine, shared.numbers[mine].given + 1, task.count_to(mine)));
        if (__any_sync(0xffffffff, gives_up)) {
          shared.failed.raise_to(1);
          break;
        }
      }
      if (thread == 0) shared.giving_turn = turn;
    }
    together();
    const GivingTurn now = shared.giving_turn;
    if (now.peer == no_rank) break;
    const Chunk bytes = chunk(now.peer, now.lane, now.round);
    const std::uint32_t number = shared.chunks_given[now.peer][now.lane] + now.round;
    give_chunk<Element>(task, task.give(now.peer).data + bytes.offset,
                        chunk_slot(task, now.peer, task.rank, now.lane, number), bytes.bytes);
    fence_system();  // every thread's part comes before the count of its chunk
    together();
    if (thread == now.peer) {
      post(&words(task.windows[now.peer]).ready[task.rank][first_lane() + now.lane], number + 1);
      shared.chunks_announced[now.peer][now.lane] = number + 1;
      patience.renew();
      do {
        if (++lane == lanes_in_block) {
          lane = 0;
          ++round;
        }
      } while (lane != 0 && chunk(mine, lane, round).bytes == 0);
    }
  }
}

}  // namespace paceline::cuda
