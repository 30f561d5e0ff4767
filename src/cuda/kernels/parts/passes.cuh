// Long folds that are passed on (direct.h): a rank adds its part to what the one before has sent, and stores the sum
// into the window of the next; the last one has the result. That of an all-reduce goes round once more, from output to
// output. Each rank stores to one neighbour, and nothing else but small words takes the links.
//
// All blocks do the same, all warps of one but the last have a lane, and in the next one's window a ring of chunks of
// 4 KB (window.h); the last warp tells what the others have stored and taken.
//
// Time: (n-1) M/(n B), twice for an all-reduce; a reduce M/B; and the way round, of which each rank takes some 6 us.
// Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009. Measured on two H200: 357 GB/s each way;
// on four: 361, a reduce 353.
#pragma once

#include "cuda/kernels/parts/clerk.cuh"
#include "cuda/kernels/parts/memory.cuh"
#include "cuda/kernels/parts/pushed_lanes.cuh"
#include "cuda/kernels/parts/twos.cuh"

namespace paceline::cuda {

// Whether sums that go on are as wide as what the type is added with (direct.h: passes_sums).
template <class Element>
inline constexpr bool sums_are_stored = !std::is_floating_point_v<typename Element::Number> ||
                                        sizeof(typename Element::Number) == sizeof(typename Element::Stored);

// A warp's part. Thread 0 knows what has come from the rank before, thread 1 what the next one has taken.
template <class Element, bool two>
class Passer {
  using Pairs = Pair[pass_unroll];
  static constexpr std::uint32_t rounds_of_step = pass_turn(two ? 2 : max_gpus);

 public:
  __device__ Passer(const DirectTask& task, const WarpNumbers& numbers, const RingPlace& place, Progress& progress,
                    int warp, std::byte* const* outputs)
      : task_(task),
        numbers_(numbers),
        progress_(progress),
        warp_(warp),
        lane_(blockIdx.x * pushing_warps + static_cast<unsigned>(warp)),
        word_(word_of_lane(blockIdx.x, warp)),
        place_(place.place),
        before_(place.before),
        next_(place.next),
        outputs_(outputs) {}

  // False: given up.
  __device__ bool run() {
    WindowWords& mine = words(task_.windows[task_.rank]);
    given_ = freed_ = progress_.given_before[next_][warp_];
    taken_ = come_ = progress_.taken_before[before_][warp_];
    const std::uint64_t longest = longest_stretch();
    const int steps = pass_steps(task_.stretches, task_.ranks);
    bool well = true;
#pragma unroll 1
    for (std::uint32_t first = 0; well && offset(first) < longest; first += rounds_of_step) {
#pragma unroll 1
      for (int number = 0; well && number < steps; ++number) {
        const PassStep step = pass_step(number, steps, place_, task_.ranks);
        const Stretch& stretch = task_.stretches[step.folder];
#pragma unroll 1
        for (std::uint32_t round = first; well && round < first + rounds_of_step; ++round)
          if (offset(round) < stretch.bytes) well = pass(step, stretch, offset(round));
      }
    }
    if (thread() == 0) {
      progress_.given[warp_].raise_to(2 * given() + 1);
      post(&mine.chunks_taken[before_][word_], taken_);
      post(&mine.chunks_given[next_][word_], given_);
    }
    return well;
  }

 private:
  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ std::uint64_t offset(std::uint32_t round) const {
    return (static_cast<std::uint64_t>(round) * gridDim.x * pushing_warps + lane_) * pass_chunk;
  }
  [[nodiscard]] __device__ std::uint64_t longest_stretch() const {
    std::uint64_t longest = 0;
#pragma unroll 1
    for (int place = 0; place < task_.ranks; ++place) longest = max(longest, task_.stretches[place].bytes);
    return longest;
  }

  // A chunk. False after an alarm.
  __device__ bool pass(const PassStep& step, const Stretch& stretch, std::uint64_t at) {
    if (!step.folds && !step.gives) {  // it lies where it should, or will before the kernel ends
      ++taken_;
      free();
      return true;
    }
    const std::uint64_t here = at + static_cast<unsigned>(thread()) * 16;
    Pairs own;
    if (step.folds) load(task_.input + stretch.input + here, stretch, at, own);
    Pairs sums;
    if (step.takes) {
      if (!wait_for_chunk()) return false;
      const std::byte* const from =
          step.folds ? slot(task_.rank, taken_) : outputs_[task_.rank] + stretch.output + here;
      for_each_pair<pass_unroll>(
          stretch, at, [&](int u, std::uint64_t) { sums[u] = peek(reinterpret_cast<const Pair*>(from + u * 512)); });
      ++taken_;
      if (thread() == 0 && !reached(come_, taken_ + 1)) come_ = peek_acquire(ready_word());
      if (step.folds) fold(step, sums, own);
      free();
    } else {
#pragma unroll
      for (int u = 0; u < pass_unroll; ++u) sums[u] = own[u];
    }
    if (step.gives) {
      if (!wait_for_room()) return false;
      store(step.folds && !step.finishes ? slot(next_, given_) : outputs_[next_] + stretch.output + here, stretch, at,
            sums);
      ++given_;
    }
    if (step.finishes) store(outputs_[task_.rank] + stretch.output + here, stretch, at, sums);
    if (step.gives) {
      if (thread() == 1 && !reached(freed_, given_ + 1 - ahead())) freed_ = peek(freed_word());
      __syncwarp();
      if (thread() == 0) progress_.given[warp_].raise_to(2 * given());
    }
    return true;
  }
  __device__ void fold(const PassStep& step, Pairs& sums, const Pairs& own) const {
    if constexpr (two) {
#pragma unroll
      for (int u = 0; u < pass_unroll; ++u)
        sums[u] = fold_of_two<Element>(static_cast<Operation>(task_.op), task_.divides != 0, sums[u], own[u]);
    } else {
#pragma unroll
      for (int u = 0; u < pass_unroll; ++u) {
        auto folded = Row<Element, Pair>::load(sums[u]);
        folded.fold(static_cast<Operation>(task_.op), Row<Element, Pair>::load(own[u]));
        sums[u] = folded.store();
      }
      if (!step.finishes || task_.divides == 0) return;
#pragma unroll
      for (int u = 0; u < pass_unroll; ++u) sums[u] = quotient<Element>(sums[u], task_.divides);
    }
  }
  __device__ static void load(const std::byte* from, const Stretch& stretch, std::uint64_t at, Pairs& pairs) {
    for_each_pair<pass_unroll>(
        stretch, at, [&](int u, std::uint64_t) { pairs[u] = *reinterpret_cast<const Pair*>(from + u * 512); });
  }
  __device__ static void store(std::byte* to, const Stretch& stretch, std::uint64_t at, const Pairs& pairs) {
    for_each_pair<pass_unroll>(stretch, at,
                               [&](int u, std::uint64_t) { *reinterpret_cast<Pair*>(to + u * 512) = pairs[u]; });
  }
  [[nodiscard]] __device__ std::byte* slot(int owner, std::uint32_t number) const {
    return task_.windows[owner] + task_.layout.passed(lane_, number) + thread() * 16;
  }

  [[nodiscard]] __device__ bool one_way() const { return task_.root < task_.ranks; }
  [[nodiscard]] __device__ std::uint32_t ahead() const { return pass_ahead(one_way()); }
  // Since the kernel began.
  [[nodiscard]] __device__ std::uint32_t given() const { return given_ - progress_.given_before[next_][warp_]; }
  [[nodiscard]] __device__ const std::uint32_t* ready_word() const {
    return &words(task_.windows[task_.rank]).ready[before_][word_];
  }
  [[nodiscard]] __device__ const std::uint32_t* freed_word() const {
    return &words(task_.windows[task_.rank]).freed[next_][word_];
  }
  __device__ bool wait_for_chunk() {
    const std::uint32_t wanted = taken_ + 1;
    const std::uint32_t message = numbers_.taken(before_) + 1;
    if (thread() == 0 && !reached(come_, wanted)) come_ = wait_for_ready(task_, ready_word(), before_, message, wanted);
    const bool well = __all_sync(0xffffffff, thread() != 0 || reached(come_, wanted)) != 0;
    __syncwarp();  // what thread 0 acquired, for all
    return well;
  }
  __device__ bool wait_for_room() {
    const std::uint32_t wanted = given_ + 1 - ahead();
    const std::uint32_t message = numbers_.given(next_) + 1;
    bool well = true;
    if (thread() == 1 && !reached(freed_, wanted)) well = wait_for_freed(task_, freed_word(), next_, message, wanted);
    if (thread() == 2 && one_way())
      while (given() - progress_.told[warp_].look() >= pass_untold) __nanosleep(20);
    return __all_sync(0xffffffff, well);
  }
  // What is taken may be overwritten.
  __device__ void free() const {
    __syncwarp();
    if (thread() == 0) progress_.taken[warp_].raise_to(taken_ - progress_.taken_before[before_][warp_]);
  }

  const DirectTask& task_;
  const WarpNumbers& numbers_;
  Progress& progress_;
  const int warp_;
  const std::uint32_t lane_;
  const std::uint32_t word_;
  const int place_;
  const int before_;
  const int next_;
  std::byte* const* const outputs_;
  // Chunks ever; and as far as is known.
  std::uint32_t given_ = 0;
  std::uint32_t freed_ = 0;
  std::uint32_t taken_ = 0;
  std::uint32_t come_ = 0;
};

// A block's part. All threads call it. False: this one has given up.
template <class Element, bool two>
__device__ bool pass_on(const DirectTask& task, const WarpNumbers& numbers, std::byte* const* outputs) {
  __shared__ Progress progress;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const RingPlace place = ring_place(task.rank, task.ranks, task.root, static_cast<int>(blockIdx.x));
  if (warp < pushing_warps) progress.begin(task, warp, word_of_lane(blockIdx.x, warp));
  __syncthreads();
  if (warp < pushing_warps) return Passer<Element, two>(task, numbers, place, progress, warp, outputs).run();
  if (warp == pushing_warps)
    announce_progress(
        progress,
        [&](int of, std::uint32_t, std::uint32_t given) {
          post(&words(task.windows[place.next]).ready[task.rank][word_of_lane(blockIdx.x, of)],
               progress.given_before[place.next][of] + given);
        },
        [&](int of, std::uint32_t taken) {
          post(&words(task.windows[place.before]).freed[task.rank][word_of_lane(blockIdx.x, of)],
               progress.taken_before[place.before][of] + taken);
        });
  return true;
}

}  // namespace paceline::cuda
