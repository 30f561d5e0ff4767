// How blocks move the stretches of a long collective between the ranks' buffers (direct.h): they copy, or fold.
//
// Which blocks use the link, and how many, decides how fast it is, for stores that come faster than it takes them hold
// each other up (docs/notes/gpu.md). Loads from a peer do not, but their requests take a tenth of the way back: 373
// GB/s one way, 336 both ways.
#pragma once

#include "cuda/kernels/parts/deal.cuh"
#include "cuda/kernels/parts/memory.cuh"
#include "cuda/kernels/parts/uneven.cuh"

namespace paceline::cuda {

// A block's number among those that use the link. The first eight blocks of a kernel without clusters come to lie on
// multiprocessors (124 to 131 of an H200) that slow each other and the others down when they store to a peer: 343 GB/s
// each way from any 24 blocks with them, 367 from 12 to 24 without. So do 16 blocks in clusters of four.
__device__ inline int from_the_end() { return static_cast<int>(gridDim.x - 1 - blockIdx.x); }

// A hand is what a warp moves at once: so many rows of 16 bytes a thread.
template <class Places, int rows>
__device__ std::uint32_t hands_of(std::uint64_t bytes) {
  return static_cast<std::uint32_t>((bytes + Places::most_before + rows * row_bytes - 1) / (rows * row_bytes));
}
template <int rows>
__device__ std::uint64_t place_in_hand(std::uint32_t hand) {
  return std::uint64_t{hand} * (rows * row_bytes) + threadIdx.x % 32 * 16;
}

// Places: even.
template <class Places>
class Copier {
 public:
  __device__ Copier(const DirectTask& task, std::byte* const* inputs, std::byte* const* outputs)
      : task_(task), inputs_(inputs), outputs_(outputs), deal_(words(task.windows[task.rank])) {}

  // What a rank keeps of its own input is copied by blocks of their own: in the others it would wait behind what waits
  // for the link.
  __device__ void copy() {
    const int kept = what_it_keeps();
    const int link_blocks = kept < 0 || goes_far() ? static_cast<int>(task_.link_blocks) : 0;
    const int block = from_the_end();
    if (block < link_blocks) {
      deal_.begin();
#pragma unroll 1
      for (int i = 0; i < task_.count; ++i) copy_far(task_.stretches[i], block, link_blocks);
    } else if (kept >= 0) {
      share_out(task_.stretches[kept], self(), block - link_blocks, static_cast<int>(gridDim.x) - link_blocks);
    }
  }

 private:
  [[nodiscard]] __device__ std::uint32_t self() const { return 1u << task_.rank; }
  [[nodiscard]] __device__ const std::byte* input(const Stretch& stretch) const {
    return inputs_[__ffs(static_cast<int>(stretch.from)) - 1] + stretch.input;
  }
  // The stretch of which this rank's output gets this rank's input, and not in place; -1: there is none.
  [[nodiscard]] __device__ int what_it_keeps() const {
    for (int i = 0; i < task_.count; ++i) {
      const Stretch& stretch = task_.stretches[i];
      if (stretch.from == self() && (stretch.to & self()) != 0 &&
          outputs_[task_.rank] + stretch.output != input(stretch))
        return i;
    }
    return -1;
  }
  // Who gets a stretch, but for what this rank keeps of its own.
  [[nodiscard]] __device__ std::uint32_t others(const Stretch& stretch) const {
    return stretch.from == self() ? stretch.to & ~self() : stretch.to;
  }
  [[nodiscard]] __device__ bool goes_far() const {
    for (int i = 0; i < task_.count; ++i)
      if (others(task_.stretches[i]) != 0) return true;
    return false;
  }
  // A rank's own input goes to one peer after the other, beginning behind it: at any time each rank gives to one and
  // gets from one. With more than two ranks each block does so by itself: dealt out, all would go on to the next peer
  // at once, where another may not have ended (four H200: all-gather of 128 MB 318 us, all-to-all 330, for 290). What
  // comes from a peer is loaded once, for all.
  __device__ void copy_far(const Stretch& stretch, int block, int blocks) {
    const std::uint32_t receivers = others(stretch);
    if (stretch.from != self() && receivers != self()) {
      deal_out<4>(stretch, receivers);
      return;
    }
#pragma unroll 1
    for (int i = 1; i <= task_.ranks; ++i) {
      const int to = task_.rank + i < task_.ranks ? task_.rank + i : task_.rank + i - task_.ranks;
      if ((receivers >> to & 1) == 0) continue;
      if (stretch.from == self() && task_.ranks > 2)
        share_out(stretch, 1u << to, block, blocks);
      else
        deal_out<8>(stretch, 1u << to);
    }
  }
  template <int unroll>
  __device__ void deal_out(const Stretch& stretch, std::uint32_t receivers) {
    const std::uint32_t hands = hands_of<Places, unroll>(stretch.bytes);
#pragma unroll 1
    while (deal_.hand() < hands) {
      const std::uint32_t hand = deal_.hand();
      deal_.ask();
      move<unroll>(stretch, receivers, hand);
      deal_.take();
    }
    deal_.skip(hands);
  }
  __device__ void share_out(const Stretch& stretch, std::uint32_t receivers, int block, int blocks) const {
    constexpr int warps = direct_threads / 32;
    const std::uint32_t hands = hands_of<Places, 8>(stretch.bytes);
#pragma unroll 1
    for (std::uint32_t hand = block * warps + threadIdx.x / 32; hand < hands; hand += blocks * warps)
      move<8>(stretch, receivers, hand);
  }
  template <int unroll>
  __device__ void move(const Stretch& stretch, std::uint32_t receivers, std::uint32_t hand) const {
    const std::byte* const from = input(stretch);
    const std::uint64_t at = place_in_hand<unroll>(hand);
    const auto output = [&](std::uint32_t left) {
      return outputs_[__ffs(static_cast<int>(left)) - 1] + stretch.output;
    };
    const Places places(output(receivers));
    ulonglong2 pairs[unroll];
    places.load(from, stretch.bytes, at, pairs);
#pragma unroll 1
    for (std::uint32_t left = receivers; left != 0; left &= left - 1)
      places.store(output(left), stretch.bytes, at, pairs);
  }

  const DirectTask& task_;
  std::byte* const* const inputs_;
  std::byte* const* const outputs_;
  Deal deal_;
};

// `unroll` pairs of `rows` inputs at once.
template <class Element, class Places, int rows, int unroll>
class Folder {
  using Pairs = ulonglong2[unroll];

 public:
  __device__ Folder(const DirectTask& task, std::byte* const* inputs, std::byte* const* outputs)
      : task_(task), stretch_(task.stretches[task.rank]), inputs_(inputs), outputs_(outputs), places_(first_output()) {}

  // In the order of the ranks.
  __device__ void fold() const {
    if (from_the_end() >= static_cast<int>(task_.link_blocks)) return;
    Deal deal(words(task_.windows[task_.rank]));
    deal.begin();
    const std::uint32_t hands = hands_of<Places, unroll>(stretch_.bytes);
#pragma unroll 1
    while (deal.hand() < hands) {
      const std::uint64_t at = place_in_hand<unroll>(deal.hand());
      deal.ask();
      Pairs results;
      if constexpr (rows == 2)
        fold_two(at, results);
      else
        fold_many(at, results);
      store(at, results);
      deal.take();
    }
  }

 private:
  [[nodiscard]] __device__ const std::byte* first_output() const {
    return stretch_.to == 0 ? nullptr : outputs_[__ffs(static_cast<int>(stretch_.to)) - 1] + stretch_.output;
  }
  __device__ void load(int first, std::uint64_t at, Pairs (&pairs)[rows]) const {
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      if (first + row >= task_.ranks) continue;
      places_.load(inputs_[first + row] + stretch_.input, stretch_.bytes, at, pairs[row]);
    }
  }
  // Averages of some types are scaled first, by the same factor on all ranks: not as they are, so not even. Before they
  // are folded: calls among the folds would take the others' registers.
  __device__ void scale(int first, Pairs (&pairs)[rows]) const {
    if constexpr (!Places::is_even && scales_first<Element>) {
      if (!task_.scales) return;
#pragma unroll
      for (int row = 0; row < rows; ++row) {
        if (first + row >= task_.ranks) continue;
#pragma unroll
        for (int u = 0; u < unroll; ++u) pairs[row][u] = multiplied<Element>(task_, pairs[row][u]);
      }
    }
  }
  // Of two ranks: needs no place for sums.
  __device__ void fold_two(std::uint64_t at, Pairs& results) const {
    Pairs pairs[rows];
    load(0, at, pairs);
    scale(0, pairs);
#pragma unroll
    for (int u = 0; u < unroll; ++u)
      results[u] = fold_of_two<Element>(static_cast<Operation>(task_.op), task_.divides != 0, pairs[0][u], pairs[1][u]);
  }
  __device__ void fold_many(std::uint64_t at, Pairs& results) const {
    Row<Element, ulonglong2> folded[unroll];
#pragma unroll 1
    for (int first = 0; first < task_.ranks; first += rows) {
      Pairs pairs[rows];
      load(first, at, pairs);
      scale(first, pairs);
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
#pragma unroll
    for (int u = 0; u < unroll; ++u) results[u] = finished(task_, folded[u]);
  }
  // To all that get it, beginning behind this rank, so that not all give to one.
  __device__ void store(std::uint64_t at, const Pairs& results) const {
#pragma unroll 1
    for (int i = 1; i <= task_.ranks; ++i) {
      const int to = task_.rank + i < task_.ranks ? task_.rank + i : task_.rank + i - task_.ranks;
      if ((stretch_.to >> to & 1) == 0) continue;
      places_.store(outputs_[to] + stretch_.output, stretch_.bytes, at, results);
    }
  }

  const DirectTask& task_;
  const Stretch& stretch_;
  std::byte* const* const inputs_;
  std::byte* const* const outputs_;
  const Places places_;
};

template <class Element>
__device__ void fold_directly(const DirectTask& task, std::byte* const* inputs, std::byte* const* outputs) {
  constexpr bool narrow = sizeof(typename Element::Stored) == 1;
  if (task.ranks == 2)
    Folder<Element, EvenPlaces, 2, 8>(task, inputs, outputs).fold();
  else
    Folder<Element, EvenPlaces, 4, (narrow ? 1 : 2)>(task, inputs, outputs).fold();
}

// Whether an element's kernels also move what is only moved: one type's do.
template <class Element>
inline constexpr bool moves_bytes = std::is_same_v<Element, ElementOf<DataType::uint8>::type>;

// What is seldom called has registers of its own.
template <class Element, bool two>
__device__ __noinline__ void move_unevenly(const DirectTask& task, std::byte* const* inputs,
                                           std::byte* const* outputs) {
  if (task.folds)
    Folder<Element, UnevenPlaces, (two ? 2 : 4), (two ? 8 : 1)>(task, inputs, outputs).fold();
  else if constexpr (moves_bytes<Element>)
    Copier<UnevenPlaces>(task, inputs, outputs).copy();
}

}  // namespace paceline::cuda
