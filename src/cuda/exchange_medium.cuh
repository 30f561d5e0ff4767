// The exchange of messages that are too long for packets and too short for chunks: one kernel, one way over the link.
//
// A message travels as lines of 128 bytes, 15 words of data and one of flag. Eight threads of a warp write a line in
// one store, and NVLink carries it in one piece: whoever sees the flag has the line. So 94% of the bytes are data, and
// there is still no fence. Slots, numbers and credits are those of exchange_small.cuh; giving goes a step ahead of
// taking, so that the link works while a warp folds what it brought before.
//
// Time: launch + one store over the link + 16/15 M/B.
// Source: NCCL's LL128 protocol (Jeaugey 2019).
#pragma once

#include "cuda/exchange_small.cuh"

namespace paceline::cuda {

inline constexpr int line_words = line_bytes / 8 - 1;  // of data
inline constexpr int lines_in_turn = 4;                // that a warp writes with one store
inline constexpr int turn_words = lines_in_turn * line_words;
inline constexpr int turns_in_step = 4;

__device__ inline ulonglong2 peek(const ulonglong2* vector) {
  ulonglong2 v;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(v.x), "=l"(v.y) : "l"(vector) : "memory");
  return v;
}
__device__ inline void post(ulonglong2* vector, ulonglong2 v) {
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(vector), "l"(v.x), "l"(v.y) : "memory");
}

// What a lane of a warp moves in one turn: two words of a line, or one and the flag.
struct LineLane {
  int line;      // of the turn's
  int word;      // of the line: this one and the next
  bool flagged;  // the next is the flag

  __device__ LineLane() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    line = lane / 8;
    word = lane % 8 * 2;
    flagged = lane % 8 == 7;
  }
  // Where the first word lies in a piece, bytes; the next follows it.
  [[nodiscard]] __device__ std::uint64_t offset(std::uint64_t turn) const {
    return ((turn * lines_in_turn + static_cast<unsigned>(line)) * line_words + static_cast<unsigned>(word)) * 8;
  }
  // Where the two words lie in a slot, in pairs of words.
  [[nodiscard]] __device__ std::uint64_t place(std::uint64_t turn) const {
    return turn * lines_in_turn * (line_bytes / 16) + threadIdx.x % 32;
  }
  // Whether the lane's line has any data.
  [[nodiscard]] __device__ bool used(std::uint64_t turn, std::uint64_t bytes) const {
    return (turn * lines_in_turn + static_cast<unsigned>(line)) * line_words * 8 < bytes;
  }
};

struct TwoWords {
  uint2 first{};
  uint2 second{};
};

__device__ inline std::uint64_t bits_of(uint2 word) {
  return static_cast<std::uint64_t>(word.x) | static_cast<std::uint64_t>(word.y) << 32;
}
__device__ inline uint2 word_of(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
}

__device__ inline TwoWords load_words(const std::byte* data, std::uint64_t offset, std::uint64_t bytes, bool flagged,
                                      bool aligned) {
  TwoWords words;
  if (offset < bytes) words.first = load_8(data + offset, bytes - offset, aligned);
  if (!flagged && offset + 8 < bytes) words.second = load_8(data + offset + 8, bytes - offset - 8, aligned);
  return words;
}
__device__ inline void store_words(std::byte* data, std::uint64_t offset, std::uint64_t bytes, bool flagged,
                                   bool aligned, const TwoWords& words) {
  if (offset < bytes) store_8(data + offset, words.first, bytes - offset, aligned);
  if (!flagged && offset + 8 < bytes) store_8(data + offset + 8, words.second, bytes - offset - 8, aligned);
}

template <class Element>
class MediumExchange {
 public:
  __device__ MediumExchange(const Task& task, const WarpNumbers& numbers, bool aligned)
      : task_(task), numbers_(numbers), aligned_(aligned) {}

  // Room for the messages in the peers' slots.
  __device__ void wait_for_credits() {
#pragma unroll 1
    for (int peer = 0; peer < task_.ranks; ++peer) {
      const std::uint32_t number = numbers_.given(peer) + 1;
      const std::uint32_t credit = numbers_.credit(peer);
      if (task_.give(peer).bytes == 0 || reached(credit, number - medium_slots)) continue;
      const std::uint32_t* const now = &words(task_.windows[task_.rank]).credits[peer];
      Patience patience(task_);
#pragma unroll 1
      while (well_ && !reached(peek(now), number - medium_slots)) well_ = patience.more(peer, number);
    }
    well_ = __all_sync(0xffffffff, well_);
  }

  // `turns_in_step` turns from `turn` on, `stride` apart; a whole warp.
  __device__ void give(std::uint64_t turn, std::uint64_t stride) {
#pragma unroll 1
    for (int step = 1; step < task_.ranks; ++step) {
      const int peer = task_.rank + step < task_.ranks ? task_.rank + step : task_.rank + step - task_.ranks;
      const std::uint32_t number = numbers_.given(peer) + 1;
      const Piece piece = task_.give(peer);
      if (!well_ || piece.bytes == 0) continue;
      TwoWords data[turns_in_step];
#pragma unroll
      for (int t = 0; t < turns_in_step; ++t)
        data[t] = load_words(piece.data, lane_.offset(turn + t * stride), piece.bytes, lane_.flagged, aligned_);
      ulonglong2* const slot = medium_slot(task_, peer, task_.rank, number);
#pragma unroll
      for (int t = 0; t < turns_in_step; ++t) {
        const std::uint64_t at = turn + t * stride;
        if (!lane_.used(at, piece.bytes)) continue;
        const std::uint64_t second = lane_.flagged ? number : bits_of(scaled<Element>(task_, data[t].second));
        post(&slot[lane_.place(at)], {bits_of(scaled<Element>(task_, data[t].first)), second});
      }
    }
  }

  __device__ void take(std::uint64_t turn, std::uint64_t stride) {
    if (task_.folds)
      take_and_fold(turn, stride);
    else
      take_and_copy(turn, stride);
  }

 private:
  // The words of one source, once all lines of the warp's turns are there.
  __device__ void fetch(int source, std::uint64_t bytes, std::uint64_t turn, std::uint64_t stride,
                        TwoWords (&data)[turns_in_step]) {
    const std::uint32_t number = numbers_.taken(source) + 1;
    const ulonglong2* const slot = medium_slot(task_, task_.rank, source, number);
    ulonglong2 found[turns_in_step];
#pragma unroll
    for (int t = 0; t < turns_in_step; ++t)
      if (lane_.used(turn + t * stride, bytes)) found[t] = peek(&slot[lane_.place(turn + t * stride)]);
    Patience patience(task_);
#pragma unroll
    for (int t = 0; t < turns_in_step; ++t) {
      const bool used = lane_.used(turn + t * stride, bytes);
#pragma unroll 1
      while (__any_sync(0xffffffff, used && lane_.flagged && found[t].y != number)) {
        if (used && lane_.flagged && found[t].y != number) well_ = patience.more(expected(task_, source, number));
        well_ = __all_sync(0xffffffff, well_);
        if (!well_) return;
        if (used) found[t] = peek(&slot[lane_.place(turn + t * stride)]);
      }
      data[t].first = word_of(found[t].x);
      data[t].second = word_of(found[t].y);
    }
  }

  __device__ void load_own(std::uint64_t turn, std::uint64_t stride, TwoWords (&data)[turns_in_step]) const {
#pragma unroll
    for (int t = 0; t < turns_in_step; ++t) {
      data[t] = load_words(task_.own, lane_.offset(turn + t * stride), task_.own_bytes, lane_.flagged, aligned_);
      data[t].first = scaled<Element>(task_, data[t].first);
      data[t].second = scaled<Element>(task_, data[t].second);
    }
  }

  __device__ void take_and_fold(std::uint64_t turn, std::uint64_t stride) {
    if (task_.own_bytes == 0) return;
    Row<Element, uint2> folded[turns_in_step][2];
#pragma unroll 1
    for (int source = 0; source < task_.ranks; ++source) {
      TwoWords data[turns_in_step];
      if (source == task_.rank)
        load_own(turn, stride, data);
      else
        fetch(source, task_.own_bytes, turn, stride, data);
#pragma unroll
      for (int t = 0; t < turns_in_step; ++t) {
        const auto first = Row<Element, uint2>::load(data[t].first);
        const auto second = Row<Element, uint2>::load(data[t].second);
        if (source == 0) {
          folded[t][0] = first;
          folded[t][1] = second;
        } else {
          folded[t][0].fold(static_cast<Operation>(task_.op), first);
          folded[t][1].fold(static_cast<Operation>(task_.op), second);
        }
      }
    }
    if (!well_) return;
#pragma unroll
    for (int t = 0; t < turns_in_step; ++t) {
      store_words(task_.target, lane_.offset(turn + t * stride), task_.own_bytes, lane_.flagged, aligned_,
                  {finished(task_, folded[t][0]), finished(task_, folded[t][1])});
    }
  }

  __device__ void take_and_copy(std::uint64_t turn, std::uint64_t stride) {
    TwoWords data[turns_in_step];
#pragma unroll 1
    for (int step = 0; step < task_.ranks; ++step) {
      // In the order in which they give to this rank.
      const int source = task_.rank >= step ? task_.rank - step : task_.rank - step + task_.ranks;
      const bool own = source == task_.rank;
      const Piece piece = own ? Piece{task_.target, task_.own_bytes} : task_.take(source);
      if (own)
        load_own(turn, stride, data);
      else
        fetch(source, piece.bytes, turn, stride, data);
      if (!well_) return;
#pragma unroll
      for (int t = 0; t < turns_in_step; ++t)
        store_words(piece.data, lane_.offset(turn + t * stride), piece.bytes, lane_.flagged, aligned_, data[t]);
    }
  }

  const Task& task_;
  const WarpNumbers& numbers_;
  const LineLane lane_;
  const bool aligned_;
  bool well_ = true;
};

template <class Element>
__global__ void __launch_bounds__(512) exchange_medium(const __grid_constant__ Task task) {
  wait_for_kernel_before();
  const WarpNumbers numbers(task);
  const auto warp = static_cast<unsigned>(threadIdx.x) / 32;
  if (warp == 0) {
    if (blockIdx.x == 0) {
      tell_peers(task, numbers);
      compare_calls(task, numbers);
    }
  } else {
    // Turns go round the warps of all blocks.
    const unsigned warps = blockDim.x / 32 - 1;
    const std::uint64_t stride = std::uint64_t{gridDim.x} * warps;
    const std::uint64_t first = std::uint64_t{blockIdx.x} * warps + warp - 1;
    std::uint64_t longest = task.own_bytes;
#pragma unroll 1
    for (int rank = 0; rank < task.ranks; ++rank)
      longest = max(longest, max(task.give(rank).bytes, task.take(rank).bytes));
    const auto used = [&](std::uint64_t turn) { return turn * (turn_words * 8) < longest; };

    MediumExchange<Element> exchange(task, numbers, task.alignment >= 8);
    exchange.wait_for_credits();
    const std::uint64_t step = stride * turns_in_step;
    if (used(first)) exchange.give(first, stride);
#pragma unroll 1
    for (std::uint64_t turn = first; used(turn); turn += step) {
      if (used(turn + step)) exchange.give(turn + step, stride);
      exchange.take(turn, stride);
    }
  }
  // After an alarm the communicator has ended, and its numbers are of no use.
  __syncthreads();
  move_on(task, numbers);
}

}  // namespace paceline::cuda
