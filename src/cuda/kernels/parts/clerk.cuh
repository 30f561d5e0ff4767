// What is the same in every exchange: the numbers of its messages, and what the ranks tell each other about them.
//
// Messages from one rank to another are numbered. A kernel reads the numbers at its beginning and moves them on at its
// end, in device memory, so that a replayed graph goes on where the last kernel ended. A warp of the first block, the
// clerk, announces the messages to come, and compares what the peers announced with this rank's call.
#pragma once

#include "cuda/kernels/parts/patience.cuh"

namespace paceline::cuda {

// Whether the kernel before this long one, of the same call, has done it all.
template <class Task>
__device__ bool went_direct(const Task& task) {
  return task.after_direct && peek(&words(task.windows[task.rank]).went_direct[blockIdx.x]) != 0;
}

// A warp's view of a kernel's messages: lane p has those from and to rank p. All lanes ask together.
class WarpNumbers {
 public:
  WarpNumbers() = default;
  // How many there will be: touches no memory.
  template <class Task>
  __device__ explicit WarpNumbers(const Task& task) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool one = lane < task.ranks && lane != task.rank;
    to_ = held(one ? task.messages_to(lane) : 0);
    from_ = held(one ? task.messages_from(lane) : 0);
    Numbers* const here = words(task.windows[task.rank]).numbers[blockIdx.x];
    here_ = held(lane < task.ranks ? here + lane : nullptr);
  }
  // How many there were before.
  __device__ void read() {
    if (here_ == nullptr) return;
    given_ = peek(&here_->given);
    taken_ = peek(&here_->taken);
  }
  // The end: when no thread of this block needs the old ones.
  __device__ void move_on_here() const {
    if (here_ != nullptr) store(*here_, {given_ + to_, taken_ + from_});
  }
  // Those of the messages that come behind these.
  template <class Task>
  [[nodiscard]] __device__ WarpNumbers followed_by(const Task& task) const {
    WarpNumbers next(task);
    next.given_ = given_ + to_;
    next.taken_ = taken_ + from_;
    return next;
  }
  [[nodiscard]] __device__ std::uint32_t given(int peer) const { return __shfl_sync(0xffffffff, given_, peer); }
  [[nodiscard]] __device__ std::uint32_t taken(int source) const { return __shfl_sync(0xffffffff, taken_, source); }
  // Of this lane's rank.
  [[nodiscard]] __device__ std::uint32_t given() const { return given_; }
  [[nodiscard]] __device__ std::uint32_t taken() const { return taken_; }
  [[nodiscard]] __device__ std::uint32_t messages_to() const { return to_; }
  [[nodiscard]] __device__ std::uint32_t messages_from() const { return from_; }
  // After this kernel's.
  [[nodiscard]] __device__ Numbers after(int peer) const {
    return {__shfl_sync(0xffffffff, given_ + to_, peer), __shfl_sync(0xffffffff, taken_ + from_, peer)};
  }

  __device__ static void store(Numbers& numbers, Numbers value) {
    asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(&numbers), "r"(value.given), "r"(value.taken)
                 : "memory");
  }

 private:
  Numbers* here_ = nullptr;  // this block's, with this lane's rank
  std::uint32_t given_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t to_ = 0;
  std::uint32_t from_ = 0;
};

// The first block's clerk, a whole warp.
template <class Task>
__device__ void announce(const Task& task, const WarpNumbers& numbers) {
  const int peer = static_cast<int>(threadIdx.x) % 32;
  if (numbers.messages_to() == 0) return;
  WindowWords& theirs = words(task.windows[peer]);
  const std::uint64_t count = task.count_to(peer);
#pragma unroll 1
  for (std::uint32_t i = 1; i <= numbers.messages_to(); ++i) {
    const std::uint32_t number = numbers.given() + i;
    post(reinterpret_cast<uint4*>(&theirs.announced[task.rank][number % announcements]),
         uint4{number, task.call_what, static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(count >> 32)});
  }
}

// That what comes is what this rank wants: its data may have come already.
template <class Task>
__device__ void compare_calls(const Task& task, const WarpNumbers& numbers) {
  const int source = static_cast<int>(threadIdx.x) % 32;
  if (numbers.messages_from() == 0) return;
  const Expected message = expected(task, source, numbers.taken() + 1);
  Patience patience(task);
#pragma unroll 1
  for (;;) {
    const Announcement found = peek(message.announced);
    if (reached(found.number, message.number)) {
      if (differs(task, message, found))
        raise_alarm(task, AlarmCause::mismatch, source, message.number, message.count, found);
      return;
    }
    if (!patience.more(message)) return;
  }
}

// Of an announcement that has come: whether it is this rank's call. Where ranks reach into each other's buffers, before
// they do.
template <class Task>
__device__ bool same_call(const Task& task, const Expected& message, const Announcement& told) {
  if (!differs(task, message, told)) return true;
  raise_alarm(task, AlarmCause::mismatch, message.source, message.number, message.count, told);
  return false;
}

// Each block moves on its share of the copies of the numbers, beginning with the one that it reads itself. A warp
// writes copies of a peer's numbers at once, from the block's `first` on; `warp` of `warps` take part.
template <class Task>
__device__ void move_copies_on(const Task& task, const WarpNumbers& numbers, unsigned first, int warp, int warps) {
  WindowWords& mine = words(task.windows[task.rank]);
#pragma unroll 1
  for (int peer = warp; peer < task.ranks; peer += warps) {
    const Numbers after = numbers.after(peer);
#pragma unroll
    for (unsigned i = 0; i < strip_blocks; i += 32) {
      const unsigned copy = blockIdx.x + (first + i + threadIdx.x % 32) * gridDim.x;
      if (copy < strip_blocks) WarpNumbers::store(mine.numbers[copy][peer], after);
    }
  }
}
static_assert(strip_blocks % 32 == 0);
// At any time, by a warp: what no block of this kernel reads. The block's own are left for the end (`move_on_here`), so
// that little is left to do there.
template <class Task>
__device__ void move_unread_on(const Task& task, const WarpNumbers& numbers) {
  move_copies_on(task, numbers, 1, 0, 1);
}

// The last that a block does, by its first thread: a call on another stream waits for it (cuda_engine_calls.cc). What
// the block's other threads have written is to come before.
template <class Task>
__device__ void sign_off(const Task& task) {
  if (!task.counted || threadIdx.x != 0) return;
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(&words(task.windows[task.rank]).blocks_done) : "memory");
}

// The end of a block of so many warps, behind a barrier: no thread needs the old numbers. All threads call it.
template <class Task>
__device__ void end_block(const Task& task, const WarpNumbers& numbers, int warps) {
  move_copies_on(task, numbers, 0, static_cast<int>(threadIdx.x) / 32, warps);
  if (task.counted) __syncthreads();
  sign_off(task);
}

}  // namespace paceline::cuda
