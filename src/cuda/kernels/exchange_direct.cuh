// Long collectives in the users' buffers themselves (direct.h): no window, no copy on the way.
//
// At the beginning every rank tells every other at which addresses that one sees its input and output (registration.h),
// in a packet each with the message's number as its flag. If all ranks see all buffers, each moves its stretches: it
// loads from the inputs, folds in the order of the ranks, and stores into the outputs; or what is folded is pushed
// (pushes.cuh) or passed on (passes.cuh). At the end every block tells its
// like on the other ranks, and waits for them, so that a kernel's end means that its rank's buffers are done with. If
// some rank does not see some buffer, all go through the window instead: by strips, in this kernel; or, if there are
// too many, in the next one, which finds out so (`went_direct`).
//
// Time: launch + two stores over the link + M/B each way.
// Source: the fused form is torch's two-shot all-reduce and MSCCL++'s; the agreement is ours.
#pragma once

#include "cuda/kernels/exchange_short.cuh"
#include "cuda/kernels/parts/direct_moves.cuh"
#include "cuda/kernels/parts/passes.cuh"
#include "cuda/kernels/parts/pushes.cuh"
#include "cuda/kernels/parts/sights.cuh"

namespace paceline::cuda {

// Thread p of a warp tells rank p where it sees this rank's buffers, and waits for the same from it. False: rank p does
// not tell, and this rank gives up; it sees nothing, or it calls something else.
__device__ inline bool exchange_sights(const DirectTask& task, const WarpNumbers& numbers, std::byte*& input,
                                       std::byte*& output, bool& gives_up) {
  const int peer = static_cast<int>(threadIdx.x) % 32;
  if (peer >= task.ranks) return true;
  if (peer == task.rank) {
    input = reinterpret_cast<std::byte*>(task.inputs[peer]);
    output = reinterpret_cast<std::byte*>(task.outputs[peer]);
    return input != nullptr;
  }
  tell_sight(task, peer, numbers.given() + 1, 0, task.inputs[peer]);
  tell_sight(task, peer, numbers.given() + 1, 1, task.outputs[peer]);
  const std::uint32_t number = numbers.taken() + 1;
  const Expected message = expected(task, peer, number);
  Patience patience(task);
#pragma unroll 1
  for (;;) {
    const Sight of_input = look_at_sight(task, peer, number, 0);
    const Sight of_output = look_at_sight(task, peer, number, 1);
    const Announcement told = peek(message.announced);
    input = of_input.address;
    output = of_output.address;
    if (of_input.number == number && of_output.number == number && reached(told.number, number))
      return same_call(task, message, told) && input != nullptr && output != nullptr;
    // It has gone on to a later one: some rank did not see all, and so none worked in the buffers.
    if (passed(of_input.number, number)) return false;
    if (!patience.more(message)) {
      gives_up = true;
      return false;
    }
  }
}

// By the warp that has told, where some thread of it gives up: the buffers are the program's again when this kernel
// ends, and a rank that comes later must not work in them. It finds no sight, and goes through the window.
__device__ inline void take_sights_back(const DirectTask& task, const WarpNumbers& numbers) {
  const int peer = static_cast<int>(threadIdx.x) % 32;
  if (peer >= task.ranks || peer == task.rank) return;
  tell_sight(task, peer, numbers.given() + 1, 0, 0);
  tell_sight(task, peer, numbers.given() + 1, 1, 0);
}

// How the buffers lie, as all ranks find it. Thread p of a warp has the addresses of rank p's.
struct Alignment {
  bool even;      // all at multiples of 16 bytes
  bool possible;  // else outputs are as far from one, whole elements, and what is folded is loaded
};
template <class Element>
__device__ Alignment alignment_of(const DirectTask& task, const std::byte* input, const std::byte* output) {
  const int peer = static_cast<int>(threadIdx.x) % 32;
  const bool is_rank = peer < task.ranks;
  const auto before = [&](const std::byte* address) {
    return is_rank ? static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) % sizeof(Granule)) : 0;
  };
  const bool even = task.stretches_are_even && __all_sync(~0u, (before(input) | before(output)) == 0) != 0;
  const bool has_output = is_rank && reinterpret_cast<std::uint64_t>(output) != no_buffer;
  const unsigned with_output = __ballot_sync(~0u, has_output);
  const unsigned all_before =
      __shfl_sync(~0u, before(output), with_output == 0 ? 0 : __ffs(static_cast<int>(with_output)) - 1);
  const bool alike = __all_sync(~0u, !has_output || before(output) == all_before) != 0;
  const bool of_elements = all_before % sizeof(typename Element::Stored) == 0;
  return {even, even || (alike && of_elements && task.folding == Folding::loaded)};
}

// In the users' buffers. Who gives up does not tell that it has done its part: others may rely on it.
template <class Element, bool two>
__device__ void move_directly(const DirectTask& task, const WarpNumbers& numbers, bool even, std::byte* const* inputs,
                              std::byte* const* outputs) {
  WindowWords& mine = words(task.windows[task.rank]);
  const int thread = static_cast<int>(threadIdx.x);
  bool well = true;
  if (!even) {
    move_unevenly<Element, two>(task, inputs, outputs);
  } else if (!task.folds) {
    if constexpr (moves_bytes<Element>) Copier<EvenPlaces>(task, inputs, outputs).copy();
  } else if (task.folding == Folding::loaded) {
    fold_directly<Element>(task, inputs, outputs);
  } else if (task.folding == Folding::passed) {
    if constexpr (two || sums_are_stored<Element>) well = pass_on<Element, two>(task, numbers, outputs);
  } else if constexpr (!two) {
    well = push_and_fold<Element>(task, numbers, outputs);
  }
  fence_system();  // every thread's part comes before its block's word
  const bool all_well = __syncthreads_and(well) != 0;
  if (thread == direct_threads - 1 && (!task.folds || task.folding == Folding::loaded) &&
      from_the_end() < static_cast<int>(task.link_blocks))
    Deal::end(mine, task.link_blocks);
  if (!all_well || thread >= 32) return;
  bool gives_up = false;
  if (thread < task.ranks && thread != task.rank) {
    const std::uint32_t number = numbers.taken() + 1;
    post(&words(task.windows[thread]).finished[task.rank][blockIdx.x], numbers.given() + 1);
    const Expected message = expected(task, thread, number);
    check_sight(task, message);
    Patience patience(task);
    while (!gives_up && peek_acquire(&mine.finished[thread][blockIdx.x]) != number) gives_up = !patience.more(message);
  }
  if (__any_sync(0xffffffff, gives_up)) take_sights_back(task, numbers);
}

// Through the window. numbers: of its messages.
template <class Element, bool two>
__device__ void move_by_strips(const Task& task, const WarpNumbers& numbers, SharedWord* taken) {
  WatchedLane watched;
  if (threadIdx.x >= 32) {
    auto* const together = gathered_in_block<paired_stride, !two>();
    const auto run = [](auto&& warp) {
      if (warp.has_part()) warp.run();
    };
    if (task.folds)
      run(ExchangeWarp<Element, paired_stride, !two, two>(task, together, taken));
    else
      run(ExchangeWarp<void, paired_stride, !two, two>(task, together, taken));
  } else {
    watched = task.folds ? watch<true, !two, two>(task) : watch<false, !two, two>(task);
    watched.begin();
    if (blockIdx.x == 0) announce(task, numbers);
    watch_until_end(watched, taken, task.layout.ring());
    if (blockIdx.x == 0) compare_calls(task, numbers);
  }
  __syncthreads();
  if (threadIdx.x < 32) watched.end();
}

// The next kernel begins when this one has ended: begun beside it, its blocks would not come to lie where they are best
// (direct_moves.cuh). Measured: 6% of a long all-reduce.
template <class Element, bool two>
__global__ void __launch_bounds__(direct_threads, 1) exchange_direct(const __grid_constant__ DirectTask task) {
  __shared__ std::byte* inputs[max_gpus];
  __shared__ std::byte* outputs[max_gpus];
  __shared__ SharedWord taken[strip_warps(paired_stride, two)];
  WindowWords& mine = words(task.windows[task.rank]);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < strip_warps(paired_stride, two)) taken[thread].clear();
  wait_for_kernel_before();
  WarpNumbers numbers(task);
  numbers.read();
  bool ready = true;
  __shared__ bool even;
  if (thread < 32) {
    const bool over = __any_sync(0xffffffff, has_ended(task)) != 0;
    if (blockIdx.x == 0) announce(task, numbers);
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    bool gives_up = false;
    ready = !over && exchange_sights(task, numbers, input, output, gives_up);
    if (__any_sync(0xffffffff, gives_up)) take_sights_back(task, numbers);
    const Alignment alignment = alignment_of<Element>(task, input, output);
    ready = ready && alignment.possible;
    if (thread < task.ranks) {
      // Its own ones are never 0 here, and may be what nobody else sees.
      inputs[thread] = thread == task.rank ? task.input : input;
      outputs[thread] = thread == task.rank ? task.output : output;
    }
    if (thread == 0) even = alignment.even;
    fence_system();  // the others' buffers are as they were when they told of them
  }
  const bool together = __syncthreads_and(ready) != 0;
  if (together) move_directly<Element, two>(task, numbers, even, inputs, outputs);
  if (blockIdx.x == 0 && thread / 32 == 1) compare_calls(task, numbers);
  if (!together && task.otherwise.strips != 0) {
    numbers = numbers.followed_by(task.otherwise);
    move_by_strips<Element, two>(task.otherwise, numbers, taken);
  }
  __syncthreads();
  if (thread == 0) {
    // The kernel behind this one may have more blocks.
    for (unsigned block = blockIdx.x; block < max_blocks; block += gridDim.x)
      post(&mine.went_direct[block], together ? 1 : 0);
    if (together && blockIdx.x == 0) atomicAdd(&mine.direct_calls, 1ull);  // nobody waits for the sum
  }
  end_block(task, numbers, direct_threads / 32);
}

}  // namespace paceline::cuda
