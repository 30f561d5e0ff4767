// Long collectives without copies on the way: each rank reads and writes the other ranks' buffers where they lie.
//
// A collective is stretches: the bytes at one offset of some ranks' inputs, folded in the order of the ranks if there
// are several, go to one offset of some ranks' outputs. Every stretch is moved by one rank. The offsets are the same in
// all buffers, so the addresses of the buffers are all that the ranks must tell each other (exchange_direct.cuh). What
// is folded may also be pushed to who folds it (pushes.cuh), or passed on from rank to rank (passes.cuh): then nobody
// loads from another rank's memory. No CUDA here: what a call does can be tested anywhere.
#pragma once

#include <cstdint>

#include "cuda/window.h"
#include "schedule/request.h"

namespace paceline::cuda {

// All offsets and lengths are multiples of 16 bytes.
struct Stretch {
  std::uint32_t from = 0;  // bit r: the input of rank r
  std::uint32_t to = 0;    // bit r: the output of rank r
  std::uint64_t input = 0;
  std::uint64_t output = 0;
  std::uint64_t bytes = 0;
};

// How what is folded comes together.
enum class Folding : std::uint8_t { loaded, pushed, passed };

// The stretches that a rank moves, or, of a fold, what rank r folds at place r; and whether the call, which is the same
// on every rank, can go this way at all. Whether it should, a table says (tuning/gpu_table.h).
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
DirectPlan plan_direct(const Request& request, int rank, int ranks, Folding folding = Folding::loaded);

// Whether sums of the type may go from rank to rank: the narrow floats' are wider until they are complete.
bool passes_sums(DataType type);

// A passed fold: a stretch begins behind the rank that folds it last, and goes round to it, each step on the next rank;
// if others get it too, it goes round once more.
struct PassStep {
  int folder;     // whose stretch
  bool takes;     // from the rank before: out of this one's window, or in its output if it is folded
  bool folds;     // adds this rank's part, or begins with it
  bool finishes;  // into this rank's output
  bool gives;     // to the next
};
PACE_HOST_DEVICE constexpr int pass_steps(const Stretch* stretches, int ranks) {
  const bool goes_round = (stretches[0].to & (stretches[0].to - 1)) != 0;
  return goes_round ? 2 * ranks - 1 : ranks;
}
PACE_HOST_DEVICE constexpr PassStep pass_step(int step, int steps, int rank, int ranks) {
  const bool once_more = step >= ranks;
  const int behind = 1 + (once_more ? step - ranks : step);
  return {behind > rank ? rank - behind + ranks : rank - behind, step > 0, !once_more, step == ranks - 1,
          step < steps - 1};
}

// Which buffers of a call other ranks must see: in folds that are pushed or passed they load none, and store to few.
struct Seen {
  bool input = true;
  bool output = true;
};
Seen seen_by_others(const Request& request, Folding folding);

// Whether this rank's buffers of the call may be read and written while others are at work on theirs: aligned, and not
// the same memory for what is given and taken at different times.
bool fits_direct(const Request& request, int ranks);

}  // namespace paceline::cuda
