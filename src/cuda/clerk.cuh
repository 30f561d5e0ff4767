// What is the same in every exchange: the numbers of its messages, and what the ranks tell each other about them.
//
// Messages from one rank to another are numbered. A kernel reads the numbers at its beginning and moves them on at its
// end, in device memory, so that a replayed graph goes on where the last kernel ended. A warp of the first block, the
// clerk, tells the peers at the beginning how many of their messages were taken before this kernel, which are the
// sender's credits, and announces the messages to come; then it compares what the peers announced with this rank's
// call.
#pragma once

#include "cuda/patience.cuh"

namespace paceline::cuda {

template <class Task>
__device__ uint4* small_slot(const Task& task, int owner, int source, std::uint32_t number) {
  const auto place = static_cast<std::uint64_t>(place_of(source, owner)) * small_slots + number % small_slots;
  return reinterpret_cast<uint4*>(task.windows[owner] + task.layout.small + place * task.layout.small_slot);
}

// A warp's view of the numbers: lane p has those of rank p. All lanes ask together.
class WarpNumbers {
 public:
  template <class Task>
  __device__ explicit WarpNumbers(const Task& task) {
    const WindowWords& mine = words(task.windows[task.rank]);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane >= task.ranks) return;
    given_ = peek(&mine.numbers[blockIdx.x][lane].given);
    taken_ = peek(&mine.numbers[blockIdx.x][lane].taken);
    credit_ = peek(&mine.credits[lane]);
  }
  [[nodiscard]] __device__ std::uint32_t given(int peer) const { return __shfl_sync(0xffffffff, given_, peer); }
  [[nodiscard]] __device__ std::uint32_t taken(int source) const { return __shfl_sync(0xffffffff, taken_, source); }
  // As it was at the beginning.
  [[nodiscard]] __device__ std::uint32_t credit(int peer) const { return __shfl_sync(0xffffffff, credit_, peer); }
  // Of this lane's rank.
  [[nodiscard]] __device__ std::uint32_t given() const { return given_; }
  [[nodiscard]] __device__ std::uint32_t taken() const { return taken_; }

 private:
  std::uint32_t given_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t credit_ = 0;
};

template <class Task>
__device__ ulonglong2* medium_slot(const Task& task, int owner, int source, std::uint32_t number) {
  const auto place = static_cast<std::uint64_t>(place_of(source, owner)) * medium_slots + number % medium_slots;
  return reinterpret_cast<ulonglong2*>(task.windows[owner] + task.layout.medium + place * task.layout.medium_slot);
}

// Flags repeat after 2^32 messages. Long before, what old messages left in the slots is wiped: each slot
// once in 2^24 messages, after its last message was taken and before its source may know that.
template <class Task>
__device__ void wipe_old(const Task& task, const WarpNumbers& numbers) {
#pragma unroll 1
  for (int source = 0; source < task.ranks; ++source) {
    const std::uint32_t taken = numbers.taken(source);
    if (source == task.rank || taken == 0 || (taken & 0xffffff) >= small_slots) continue;
    const auto wipe = [](uint4* slot, std::uint32_t bytes) {
#pragma unroll 1
      for (std::uint32_t i = threadIdx.x % 32; i < bytes / sizeof(uint4); i += 32) post(&slot[i], uint4{0, 0, 0, 0});
    };
    wipe(small_slot(task, task.rank, source, taken), task.layout.small_slot);
    wipe(reinterpret_cast<uint4*>(medium_slot(task, task.rank, source, taken)), task.layout.medium_slot);
    __threadfence_system();
    __syncwarp();
  }
}

// The first block's clerk, a whole warp.
template <class Task>
__device__ void tell_peers(const Task& task, const WarpNumbers& numbers) {
  wipe_old(task, numbers);
  const int peer = static_cast<int>(threadIdx.x) % 32;
  if (peer >= task.ranks || peer == task.rank) return;
  WindowWords& theirs = words(task.windows[peer]);
  post(&theirs.credits[task.rank], numbers.taken());
  const Piece piece = task.give(peer);
  if (piece.bytes == 0) return;
  const std::uint32_t number = numbers.given() + 1;
  const std::uint64_t count = task.count_of(piece);
  post(reinterpret_cast<uint4*>(&theirs.announced[task.rank][number % announcements]),
       uint4{number, task.call_what, static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(count >> 32)});
}

// That what comes is what this rank wants: its data may have come already.
template <class Task>
__device__ void compare_calls(const Task& task, const WarpNumbers& numbers) {
  const int source = static_cast<int>(threadIdx.x) % 32;
  if (source >= task.ranks || task.take(source).bytes == 0) return;
  const Expected message = expected(task, source, numbers.taken() + 1);
  Patience patience(task);
#pragma unroll 1
  for (;;) {
    const Announcement found = peek(message.announced);
    if (reached(found.number, message.number)) {
      if (found.number == message.number && (found.what != task.call_what || found.count != message.count))
        raise_alarm(task, AlarmCause::mismatch, source, message.number, message.count, found);
      return;
    }
    if (!patience.more(message)) return;
  }
}

// The end, when no thread of this block needs the old numbers: each block moves on its share of the copies. A warp
// writes all copies of a peer's numbers at once.
template <class Task>
__device__ void move_on(const Task& task, const WarpNumbers& numbers) {
  WindowWords& mine = words(task.windows[task.rank]);
  const unsigned copy = threadIdx.x % 32;
  const bool in_share = copy % gridDim.x == blockIdx.x;
#pragma unroll 1
  for (int peer = static_cast<int>(threadIdx.x) / 32; peer < task.ranks; peer += static_cast<int>(blockDim.x) / 32) {
    const std::uint32_t given = numbers.given(peer) + (task.give(peer).bytes != 0 ? 1 : 0);
    const std::uint32_t taken = numbers.taken(peer) + (task.take(peer).bytes != 0 ? 1 : 0);
    if (in_share)
      asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(&mine.numbers[copy][peer]), "r"(given), "r"(taken)
                   : "memory");
  }
}
static_assert(max_blocks == 32);

}  // namespace paceline::cuda
