// Long collectives in the users' buffers themselves (direct.h): no window, no copy on the way.
//
// At the beginning every rank tells every other at which addresses that one sees its input and output (registration.h),
// in a packet each with the message's number as its flag. If all ranks see all buffers, each moves its stretches: it
// loads from the inputs, folds in the order of the ranks, and stores into the outputs. At the end every block tells its
// like on the other ranks, and waits for them, so that a kernel's end means that its rank's buffers are done with. If
// some rank does not see some buffer, the kernel ends at once, and the next one, which goes through the window, finds
// out so (`went_direct`).
//
// Time: launch + two stores over the link + M/B each way.
// Source: the fused form is torch's two-shot all-reduce and MSCCL++'s; the agreement is ours.
#pragma once

#include "cuda/clerk.cuh"
#include "cuda/memory.cuh"

namespace paceline::cuda {

inline constexpr int direct_threads = 512;

class Sighting {
 public:
  // Thread p of a warp tells rank p where it sees this rank's buffers, and waits for the same from it. False: rank p
  // does not tell, or it sees nothing.
  __device__ static bool exchange(const DirectTask& task, const WarpNumbers& numbers, std::byte*& input,
                                  std::byte*& output) {
    const int peer = static_cast<int>(threadIdx.x) % 32;
    if (peer >= task.ranks) return true;
    if (peer == task.rank) {
      input = task.input;
      output = task.output;
      return task.inputs[peer] != 0;
    }
    const std::uint32_t given = numbers.given() + 1;
    auto* const there = reinterpret_cast<uint4*>(words(task.windows[peer]).sights[task.rank][blockIdx.x][given & 1]);
    post(there, packet(task.inputs[peer], given));
    post(there + 1, packet(task.outputs[peer], given));
    const std::uint32_t taken = numbers.taken() + 1;
    const auto* const here =
        reinterpret_cast<const uint4*>(words(task.windows[task.rank]).sights[peer][blockIdx.x][taken & 1]);
    input = await(task, peer, here, taken);
    output = await(task, peer, here + 1, taken);
    return input != nullptr && output != nullptr;
  }

 private:
  __device__ static uint4 packet(std::uint64_t address, std::uint32_t number) {
    return {static_cast<std::uint32_t>(address), number, static_cast<std::uint32_t>(address >> 32), number};
  }
  __device__ static std::byte* await(const DirectTask& task, int peer, const uint4* from, std::uint32_t number) {
    Patience patience(task);
    const Expected message = expected(task, peer, number);
#pragma unroll 1
    for (;;) {
      const uint4 found = peek(from);
      if (found.y == number && found.w == number)
        return reinterpret_cast<std::byte*>(static_cast<std::uint64_t>(found.x) | static_cast<std::uint64_t>(found.z)
                                                                                      << 32);
      if (!patience.more(message)) return nullptr;
    }
  }
};

// What all blocks' threads move, side by side: `unroll` pairs of `rows` rows at once. Rows are the inputs of a fold, or
// the stretches of a copy.
template <class Element, int rows, int unroll>
class Mover {
  using Pairs = ulonglong2[unroll];
  static constexpr std::uint64_t step = direct_threads * 16;

 public:
  __device__ Mover(const DirectTask& task, std::byte* const* inputs, std::byte* const* outputs)
      : task_(task), inputs_(inputs), outputs_(outputs) {}

  // In the order of the ranks.
  __device__ void fold(const Stretch& stretch) const {
#pragma unroll 1
    for (std::uint64_t at = begin(); at < stretch.bytes; at += stride()) {
      Row<Element, ulonglong2> folded[unroll];
#pragma unroll 1
      for (int first = 0; first < task_.ranks; first += rows) {
        Pairs pairs[rows];
#pragma unroll
        for (int row = 0; row < rows; ++row)
          if (first + row < task_.ranks) load(inputs_[first + row] + stretch.input, stretch.bytes, at, pairs[row]);
#pragma unroll
        for (int row = 0; row < rows; ++row) {
          if (first + row >= task_.ranks) continue;
#pragma unroll
          for (int u = 0; u < unroll; ++u) {
            const auto next = Row<Element, ulonglong2>::load(pairs[row][u]);
            if (first + row == 0)
              folded[u] = next;
            else
              folded[u].fold(static_cast<Operation>(task_.op), next);
          }
        }
      }
      Pairs results;
#pragma unroll
      for (int u = 0; u < unroll; ++u) results[u] = finished(task_, folded[u]);
      spread(stretch, at, results, stretch.to);
    }
  }

  // All stretches side by side; they are of one length. What a rank keeps of its own input is copied by blocks of their
  // own: in the others it would wait behind what waits for the link.
  __device__ void copy() const {
    const int kept = what_it_keeps();
    bool gives = false;
    for (int i = 0; i < task_.count; ++i) gives = gives || others(task_.stretches[i]) != 0;
    const int own_blocks = kept < 0 ? 0 : gives ? max_blocks / 4 : max_blocks;
    if (static_cast<int>(blockIdx.x) < own_blocks)
      copy_own(task_.stretches[kept], own_blocks);
    else
      copy_to_others(own_blocks);
  }

 private:
  [[nodiscard]] __device__ static std::uint64_t begin() { return blockIdx.x * step * unroll + threadIdx.x * 16; }
  [[nodiscard]] __device__ static std::uint64_t stride() { return gridDim.x * step * unroll; }
  // Of a stretch that is copied.
  [[nodiscard]] __device__ const std::byte* input(int index) const {
    const Stretch& stretch = task_.stretches[index];
    return inputs_[__ffs(static_cast<int>(stretch.from)) - 1] + stretch.input;
  }
  [[nodiscard]] __device__ std::uint32_t self() const { return 1u << task_.rank; }
  // The stretch of which this rank's output gets this rank's input, and not in place; -1: there is none.
  [[nodiscard]] __device__ int what_it_keeps() const {
    for (int i = 0; i < task_.count; ++i) {
      const Stretch& stretch = task_.stretches[i];
      if (stretch.from == self() && (stretch.to & self()) != 0 && outputs_[task_.rank] + stretch.output != input(i))
        return i;
    }
    return -1;
  }
  __device__ void copy_own(const Stretch& stretch, int blocks) const {
    constexpr int more = 4 * unroll;  // a multiprocessor moves what it has on its way at once
    const std::byte* const from = inputs_[task_.rank] + stretch.input;
    std::byte* const to = outputs_[task_.rank] + stretch.output;
#pragma unroll 1
    for (std::uint64_t at = blockIdx.x * step * more + threadIdx.x * 16; at < stretch.bytes;
         at += blocks * step * more) {
      ulonglong2 pairs[more];
#pragma unroll
      for (int u = 0; u < more; ++u)
        if (at + u * step < stretch.bytes) pairs[u] = *reinterpret_cast<const ulonglong2*>(from + at + u * step);
#pragma unroll
      for (int u = 0; u < more; ++u)
        if (at + u * step < stretch.bytes) *reinterpret_cast<ulonglong2*>(to + at + u * step) = pairs[u];
    }
  }
  __device__ void copy_to_others(int own_blocks) const {
    const std::uint64_t blocks = gridDim.x - own_blocks;
    const std::uint64_t block = blockIdx.x - own_blocks;
    const std::uint64_t bytes = task_.stretches[0].bytes;
#pragma unroll 1
    for (std::uint64_t at = block * step * unroll + threadIdx.x * 16; at < bytes; at += blocks * step * unroll) {
#pragma unroll 1
      for (int first = 0; first < task_.count; first += rows) {
        Pairs pairs[rows];
#pragma unroll
        for (int row = 0; row < rows; ++row)
          if (first + row < task_.count && others(task_.stretches[first + row]) != 0)
            load(input(first + row), bytes, at, pairs[row]);
#pragma unroll
        for (int row = 0; row < rows; ++row)
          if (first + row < task_.count) {
            const Stretch& stretch = task_.stretches[first + row];
            spread(stretch, at, pairs[row], others(stretch));
          }
      }
    }
  }
  // Who gets a stretch, but for what this rank keeps of its own.
  [[nodiscard]] __device__ std::uint32_t others(const Stretch& stretch) const {
    return stretch.from == self() ? stretch.to & ~self() : stretch.to;
  }
  __device__ static void load(const std::byte* from, std::uint64_t bytes, std::uint64_t at, Pairs& pairs) {
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      if (at + u * step < bytes) pairs[u] = *reinterpret_cast<const ulonglong2*>(from + at + u * step);
  }
  // To all `receivers`, beginning with this rank, whose own memory does not wait for the link, and going on behind it,
  // so that not all give to one. What lies in its place already, as a root's does, needs no copy.
  __device__ void spread(const Stretch& stretch, std::uint64_t at, const Pairs& pairs, std::uint32_t receivers) const {
#pragma unroll 1
    for (int i = 0; i < task_.ranks; ++i) {
      const int to = task_.rank + i < task_.ranks ? task_.rank + i : task_.rank + i - task_.ranks;
      if ((receivers >> to & 1) == 0) continue;
      std::byte* const into = outputs_[to] + stretch.output;
      if (stretch.from == 1u << to && into == inputs_[to] + stretch.input) continue;
#pragma unroll
      for (int u = 0; u < unroll; ++u)
        if (at + u * step < stretch.bytes) *reinterpret_cast<ulonglong2*>(into + at + u * step) = pairs[u];
    }
  }

  const DirectTask& task_;
  std::byte* const* const inputs_;
  std::byte* const* const outputs_;
};

template <class Element, int rows, int unroll>
__device__ void move(const DirectTask& task, std::byte* const* inputs, std::byte* const* outputs) {
  const Mover<Element, rows, unroll> mover(task, inputs, outputs);
  if (!task.folds)
    mover.copy();
  else if (task.count != 0)
    mover.fold(task.stretches[0]);
}

template <class Element>
__global__ void __launch_bounds__(direct_threads, 1) exchange_direct(const __grid_constant__ DirectTask task) {
  __shared__ std::byte* inputs[max_gpus];
  __shared__ std::byte* outputs[max_gpus];
  WindowWords& mine = words(task.windows[task.rank]);
  const int thread = static_cast<int>(threadIdx.x);
  wait_for_kernel_before();
  WarpNumbers numbers(task);
  numbers.read(task);
  bool ready = true;
  if (thread < 32) {
    if (blockIdx.x == 0) announce(task, numbers);
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    ready = Sighting::exchange(task, numbers, input, output);
    if (thread < task.ranks) {
      inputs[thread] = input;
      outputs[thread] = output;
    }
    fence_system();  // the others' buffers are as they were when they told of them
  }
  const bool together = __syncthreads_and(ready) != 0;
  if (together) {
    constexpr int wide = sizeof(typename Element::Stored) == 1 ? 2 : 4;  // what the registers hold
    if (task.ranks == 2)
      move<Element, 2, wide>(task, inputs, outputs);
    else
      move<Element, 4, wide / 2>(task, inputs, outputs);
    fence_system();  // every thread's part comes before its block's word
    __syncthreads();
    let_next_kernel_start();
    if (thread < task.ranks && thread != task.rank) {
      const std::uint32_t number = numbers.taken() + 1;
      post(&words(task.windows[thread]).finished[task.rank][blockIdx.x], numbers.given() + 1);
      const Expected message = expected(task, thread, number);
      Patience patience(task);
      while (!reached(peek_acquire(&mine.finished[thread][blockIdx.x]), number))
        if (!patience.more(message)) break;
    }
  }
  if (blockIdx.x == 0 && thread / 32 == 1) compare_calls(task, numbers);
  __syncthreads();
  if (thread == 0) {
    post(&mine.went_direct[blockIdx.x], together ? 1 : 0);
    if (together && blockIdx.x == 0) atomicAdd(&mine.direct_calls, 1ull);  // nobody waits for the sum
  }
  move_on(task, numbers, thread / 32, direct_threads / 32);
  if (task.counted) __syncthreads();
  sign_off(task);
}

}  // namespace paceline::cuda
