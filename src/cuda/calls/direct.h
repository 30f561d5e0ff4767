// Long collectives without copies on the way: each rank reads and writes the other ranks' buffers where they lie.
//
// A collective is stretches: the bytes at one offset of some ranks' inputs, folded in the order of the ranks if there
// are several, go to one offset of some ranks' outputs. Every stretch is moved by one rank. The offsets are the same in
// all buffers, so the addresses of the buffers are all that the ranks must tell each other (exchange_direct.cuh). What
// is folded may also be pushed to who folds it (pushes.cuh), or passed on from rank to rank (passes.cuh): then nobody
// loads from another rank's memory. Where something is no multiple of 16 bytes, it is neither (uneven.cuh). No CUDA
// here: what a call does can be tested anywhere.
#pragma once

#include <cstdint>

#include "cuda/memory/window.h"
#include "engine/request.h"

namespace paceline::cuda {

struct Stretch {
  std::uint32_t from = 0;  // bit r: the input of rank r
  std::uint32_t to = 0;    // bit r: the output of rank r
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  std::uint64_t bytes = 0;
};

// How what is folded comes together.
enum class Folding : std::uint8_t { loaded, pushed, passed };

// The stretches that a rank moves; or, of a fold, what rank r folds at place r; or what ends at a place of a ring. And
// whether the call, which is the same on every rank, can go this way at all. Whether it should, a table says
// (tuning/gpu_table.h).
struct DirectPlan {
  bool possible = false;
  int blocks = max_blocks;       // of the kernel: the same on every rank
  int cluster = 1;               // blocks that lie close together
  int link_blocks = max_blocks;  // that load from other ranks, or store to them (direct_moves.cuh); or push
  Folding folding = Folding::loaded;
  int count = 0;
  Stretch stretches[max_gpus];
};
// Blocks that copy what a rank keeps of its own, where others use the link.
inline constexpr int keeping_blocks = 8;
inline constexpr int blocks_in_cluster = 4;
DirectPlan plan_direct(const Request& request, int rank, int ranks, Folding folding = Folding::loaded);

// Whether all offsets and lengths are multiples of 16 bytes, and what is folded is folded as it is. Else: loaded.
bool goes_evenly(const Request& request);

// Whether sums of the type may go from rank to rank: the narrow floats' are wider until they are complete.
bool passes_sums(DataType type);

// A block's ring, in which its chunks are passed on. Without a root each rank's place is its number. A root has the
// last place, and the others turn by one from block to block: each of them gives an equal part to the root, and
// none has only the first place's work.
struct RingPlace {
  int place;
  int before;  // ranks
  int next;
};
PACE_HOST_DEVICE constexpr RingPlace ring_place(int rank, int ranks, int root, int block) {
  const int last = ranks - 1;
  const bool has_root = root < ranks;
  // Of those that turn, counted from behind the root.
  const int turn = has_root ? block % last : 0;
  const auto rank_at = [&](int place) {
    if (!has_root) return place;
    return place == last ? root : (root + 1 + (place + last - turn) % last) % ranks;
  };
  const int place = !has_root ? rank : rank == root ? last : ((rank + ranks - root - 1) % ranks + turn) % last;
  return {place, rank_at(place > 0 ? place - 1 : last), rank_at(place < last ? place + 1 : 0)};
}

// A passed fold: a stretch begins behind the place where it is folded last, and goes round to that, each step on the
// next rank; if others get it too, it goes round once more.
struct PassStep {
  int folder;     // the place, whose stretch it is
  bool takes;     // from the rank before: out of this one's window, or in its output if it is folded
  bool folds;     // adds this rank's part, or begins with it
  bool finishes;  // into this rank's output
  bool gives;     // to the next
};
// Chunks of a step that a warp moves before it goes on to the next step, so that what it waits for was sent some time
// ago. Fewer than a ring holds: then some rank of a ring can always go on.
PACE_HOST_DEVICE constexpr std::uint32_t pass_turn(int ranks) { return ranks == 2 ? 6 : 4; }
static_assert(pass_turn(2) < pass_slots && pass_turn(3) < pass_slots);
// Chunks that are given before the first of them is taken, at most. What goes one way, to a root, needs fewer, and
// more only hold each other up: a reduce of 1 GB on four H200 takes 3124 us with four, 3043 with six, 3051 with eight.
PACE_HOST_DEVICE constexpr std::uint32_t pass_ahead(bool one_way) { return one_way ? 6 : pass_slots; }
static_assert(pass_ahead(true) <= pass_slots);
// And of what goes one way, those of a warp that are stored before the next rank knows of the first of them: what is
// told of waits for all that the multiprocessor has stored. The same reduce takes 3046 us without this, 3008 with two.
inline constexpr std::uint32_t pass_untold = 2;
PACE_HOST_DEVICE constexpr int pass_steps(const Stretch* stretches, int ranks) {
  const std::uint32_t to = stretches[ranks - 1].to;  // there is one, also where there are no others
  return (to & (to - 1)) != 0 ? 2 * ranks - 1 : ranks;
}
PACE_HOST_DEVICE constexpr PassStep pass_step(int step, int steps, int place, int ranks) {
  const bool once_more = step >= ranks;
  const int behind = 1 + (once_more ? step - ranks : step);
  return {behind > place ? place - behind + ranks : place - behind, step > 0, !once_more, step == ranks - 1,
          step < steps - 1};
}

// Which buffers of a call other ranks must see: in folds that are pushed or passed they load none, and store to few.
struct Seen {
  bool input = true;
  bool output = true;
};
Seen seen_by_others(const Request& request, Folding folding);

// Whether this rank's buffers of the call may be read and written while others are at work on theirs: not the same
// memory for what is given and taken at different times; and where the others do not see how it lies, aligned.
bool fits_direct(const Request& request, int ranks, Folding folding);

}  // namespace paceline::cuda
