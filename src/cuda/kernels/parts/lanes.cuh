// The lanes of long messages: which chunk a lane carries in a round, where it lies, and what the threads of a block
// share (exchange_large.cuh).
#pragma once

#include "cuda/kernels/parts/clerk.cuh"
#include "cuda/kernels/parts/memory.cuh"
#include "cuda/kernels/parts/shared_word.cuh"

namespace paceline::cuda {

inline constexpr int giving_threads = 128;
inline constexpr int group_threads = 128;  // that take from one lane
inline constexpr int large_threads = giving_threads + lanes_in_block * group_threads;
inline constexpr int strip_threads = 128;  // beside them, where short messages go along
// Chunks in shared memory; on their way into it; and on their way out of it.
struct LongChunks {
  static constexpr int stages = 6, loads_ahead = 3, stores_open = 2;
};
struct ShortChunks {
  static constexpr int stages = 12, loads_ahead = 5, stores_open = 6;
};

// What a group takes next of several messages, and what is given next (long_messages.cuh).
struct TakingTurn {
  int source;             // no_rank: there is no more, or there was an alarm
  const std::byte* from;  // nullptr: it has come into the window
  std::uint32_t round;
};
struct GivingTurn {
  int peer;  // no_rank: as above
  int lane;
  std::uint32_t round;
};

struct LargeShared {
  alignas(8) std::uint64_t loaded[ShortChunks::stages];  // barriers
  Numbers numbers[max_gpus];
  std::uint32_t chunks_given[max_gpus][lanes_in_block];      // before this kernel
  std::uint32_t chunks_announced[max_gpus][lanes_in_block];  // as the peers know; of the thread that tells them
  std::uint32_t chunks_taken[max_gpus][lanes_in_block];      // before this kernel
  // Of long messages (long_messages.cuh).
  TakingTurn taking_turns[lanes_in_block];
  GivingTurn giving_turn;
  std::uint32_t settled[max_gpus];                // groups that have no more use for the source's offer
  std::uint32_t there[max_gpus][lanes_in_block];  // chunks that had come and were not taken, at the last look
  // Chunks given by bulk copies that are in the peers' windows.
  SharedWord arrived;
  // Rounds in which all that is given was read from the rank's memory. Kept up to date where the task overwrites.
  SharedWord read[lanes_in_block];
  // A barrier needs all of its threads: those of one side leave together, by a flag that is written before a barrier.
  SharedWord failed;  // anyone's; looked at by those who wait
  bool giving_failed;
  bool taking_failed[lanes_in_block];
  // For bulk copies. Last: a GPU without room for them gets a kernel without.
  alignas(128) std::byte chunks[LongChunks::stages * largest_chunk];
};
__device__ inline bool has_chunks() {
  std::uint32_t bytes;
  asm("mov.u32 %0, %dynamic_smem_size;" : "=r"(bytes));
  return bytes >= sizeof(LargeShared);
}

// The chunk of a piece that a lane has in a round.
struct Chunk {
  std::uint64_t offset;
  std::uint32_t bytes;  // 0: none
};
__device__ inline Chunk chunk_of(const Piece& piece, const Cut& cut, std::uint32_t lane, std::uint32_t round) {
  if (lane >= cut.lanes || cut.chunk == 0) return {0, 0};
  const std::uint64_t offset = (lane + static_cast<std::uint64_t>(round) * cut.lanes) * cut.chunk;
  if (offset >= piece.bytes) return {0, 0};
  const std::uint64_t left = piece.bytes - offset;
  return {offset, left < cut.chunk ? static_cast<std::uint32_t>(left) : cut.chunk};
}
__device__ inline std::uint32_t first_lane() { return blockIdx.x * lanes_in_block; }

// What this block gives, in order: round by round, lane by lane, peer by peer.
template <class Task>
class Cursor {
 public:
  __device__ explicit Cursor(const Task& task) : task_(task) { settle(); }
  [[nodiscard]] __device__ bool ended() const { return ended_; }
  [[nodiscard]] __device__ std::uint32_t round() const { return round_; }
  [[nodiscard]] __device__ int lane() const { return lane_; }  // of this block
  [[nodiscard]] __device__ int peer() const {
    const int peer = task_.rank + step_;
    return peer < task_.ranks ? peer : peer - task_.ranks;
  }
  [[nodiscard]] __device__ std::uint32_t bytes() const { return chunk_.bytes; }
  [[nodiscard]] __device__ std::byte* data() const { return data_; }
  __device__ void next() {
    ++step_;
    settle();
  }

 private:
  // The first lane of a block is the last to run out of chunks.
  __device__ void settle() {
    for (bool any = step_ > 1 || lane_ > 0;; ++round_, lane_ = 0, any = false) {
#pragma unroll 1
      for (; lane_ < lanes_in_block; ++lane_, step_ = 1)
#pragma unroll 1
        for (; step_ < task_.ranks; ++step_) {
          const Piece piece = task_.give(peer());
          chunk_ = chunk_of(piece, task_.give_cut(peer()), first_lane() + static_cast<std::uint32_t>(lane_), round_);
          data_ = piece.data + chunk_.offset;
          if (chunk_.bytes != 0) return;
        }
      ended_ = !any;
      if (ended_) return;
    }
  }
  const Task& task_;
  int step_ = 1;
  int lane_ = 0;
  std::uint32_t round_ = 0;
  bool ended_ = false;
  Chunk chunk_{};
  std::byte* data_ = nullptr;
};

template <class Task>
__device__ std::byte* chunk_slot(const Task& task, int owner, int source, int lane, std::uint32_t number) {
  return task.windows[owner] + task.layout.chunk(place_of(source, owner), first_lane() + lane, number);
}

// How many chunks of this lane the peer has taken.
template <class Task>
__device__ std::uint32_t peek_freed(const Task& task, int peer, int lane) {
  return peek(&words(task.windows[task.rank]).freed[peer][first_lane() + lane]);
}

// Room for chunk `number` in the peer's ring. freed: an earlier look.
template <class Task>
__device__ bool wait_for_room(const Task& task, LargeShared& shared, int peer, int lane, std::uint32_t number,
                              std::uint32_t freed) {
  Patience patience(task);
  for (; !reached(freed, number + 1 - task.layout.chunk_slots); freed = peek_freed(task, peer, lane))
    if (shared.failed.look() != 0 || !patience.more(peer, shared.numbers[peer].given + 1, task.count_to(peer))) {
      shared.failed.raise_to(1);
      return false;
    }
  return true;
}

}  // namespace paceline::cuda
