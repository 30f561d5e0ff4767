// How GPUs walk a schedule: which words a step waits for, where its data lies, whom it tells. Rules alone: the kernel
// (walk.cuh) and the stand-in that the tests run on the host both follow them.
//
// A channel of the schedule has some blocks. Each takes all of the channel's steps in order and moves its slice of
// every one; all ranks cut a step alike, so a block talks to the blocks of its number on the other ranks. What it gives
// to one of these is a chunk in the peer's window (window.h): the rings, counts and numbers are those of long messages,
// and messages and walks follow each other in any order. The chunks go through the block's lanes in turn, which
// together hold as many as `capacity(n)`: where the proof shows that no step waits for itself, no block does.
//
// The blocks of a rank go at their own pace. A step that touches what other blocks' slices of an earlier step have
// touched waits until all have done that one.
#pragma once

#include "cuda/calls/task.h"
#include "schedule/schedule.h"

namespace paceline::cuda {

inline constexpr int walk_threads = 512;  // of a block
inline constexpr int most_lanes = 8;      // of a block

// Where Call::what says which algorithm is walked, by its number in the table, from 1; 0: none. Roots are short here.
inline constexpr int algorithm_shift = 24;

// One step of one rank. Slices begin at multiples of 16 bytes.
struct DeviceStep {
  std::uint64_t source = 0;  // bytes, from the beginning of its buffer
  std::uint64_t target = 0;
  std::uint64_t bytes = 0;
  std::uint64_t share = 0;  // of a block: its slice begins at block * share
  std::uint32_t after = 0;  // steps of the channel that all blocks must have done
  std::uint16_t peers = 0;  // bit p: rank p
  Action action = Action::copy;
  Buffer source_buffer = Buffer::input;
  Buffer target_buffer = Buffer::output;
  bool own = false;      // of recv_reduce: folds the source too. Operands go in the order of ranks
  bool awaited = false;  // some step waits for it
};
static_assert(sizeof(DeviceStep) == 48);

// The argument of a walk's kernel.
struct WalkTask : Terms {
  std::byte* windows[max_gpus];
  const DeviceStep* steps;
  std::uint32_t begins[max_channels + 1];  // channel c has the steps from begins[c] to begins[c + 1]
  std::byte* buffers[3];                   // by Buffer
  std::uint32_t* progress;                 // of each block, steps done, ever; nullptr: no step waits for other blocks
  std::uint16_t gives_to;                  // bit p: some step gives to rank p
  std::uint16_t takes_from;
  std::uint8_t blocks;  // of a channel
  std::uint8_t lanes;   // of a block

  // To the clerk (clerk.cuh) all that goes between two ranks is one message.
  [[nodiscard]] constexpr std::uint32_t messages_to(int peer) const { return std::uint32_t{gives_to} >> peer & 1; }
  [[nodiscard]] constexpr std::uint32_t messages_from(int source) const {
    return std::uint32_t{takes_from} >> source & 1;
  }
  [[nodiscard]] constexpr std::uint64_t count_to(int) const { return call_count; }
  [[nodiscard]] constexpr std::uint64_t count_from(int) const { return call_count; }
};

// Where a block stands.
struct BlockState {
  std::uint32_t channel;
  std::uint32_t block;                            // of the channel
  std::uint32_t number;                           // of the block, over all channels
  std::uint32_t given[max_gpus];                  // chunks to each rank, in this walk
  std::uint32_t taken[max_gpus];                  // chunks from each rank, in this walk
  std::uint32_t before[2][max_gpus][most_lanes];  // chunks taken (0) and given (1) before it, ever
  std::uint32_t steps_before;                     // done before it, ever
};

struct Slice {
  std::uint64_t offset;
  std::uint64_t bytes;  // 0: this block has nothing to do
};
constexpr Slice slice_of(const DeviceStep& step, std::uint32_t block) {
  const std::uint64_t offset = step.share * block;
  if (offset >= step.bytes) return {0, 0};
  const std::uint64_t left = step.bytes - offset;
  return {offset, left < step.share ? left : step.share};
}
constexpr bool has_peer(const DeviceStep& step, int rank) { return (step.peers >> rank & 1) != 0; }
constexpr bool gives(const DeviceStep& step) { return step.action == Action::send; }

// ---- Beginning and end: a part for each rank and lane of the block ----

PACE_HOST_DEVICE inline void place_block(const WalkTask& task, BlockState& state, std::uint32_t number) {
  state.number = number;
  state.channel = number / task.blocks;
  state.block = number % task.blocks;
  // Volatile: written by an earlier kernel, which may have ended after this one was started.
  state.steps_before =
      task.progress == nullptr ? 0 : *const_cast<const volatile std::uint32_t*>(&task.progress[number]);
}
PACE_HOST_DEVICE inline void begin_lane(const WalkTask& task, BlockState& state, int rank, std::uint32_t lane) {
  const volatile WindowWords& mine = words(task.windows[task.rank]);
  const std::uint32_t there = state.number * task.lanes + lane;
  state.before[0][rank][lane] = mine.chunks_taken[rank][there];
  state.before[1][rank][lane] = mine.chunks_given[rank][there];
  if (lane == 0) state.taken[rank] = state.given[rank] = 0;
}
PACE_HOST_DEVICE inline void end_lane(const WalkTask& task, const BlockState& state, int rank, std::uint32_t lane) {
  volatile WindowWords& mine = words(task.windows[task.rank]);
  const std::uint32_t there = state.number * task.lanes + lane;
  const auto through = [&](std::uint32_t chunks) { return (chunks + task.lanes - 1 - lane) / task.lanes; };
  mine.chunks_taken[rank][there] = state.before[0][rank][lane] + through(state.taken[rank]);
  mine.chunks_given[rank][there] = state.before[1][rank][lane] + through(state.given[rank]);
}

// ---- One step ----

// The chunk that goes to, or comes from, a rank next.
struct ChunkPlace {
  std::uint32_t lane;    // of all
  std::uint32_t number;  // in that lane
};
PACE_HOST_DEVICE inline ChunkPlace next_chunk(const WalkTask& task, const BlockState& state, const DeviceStep& step,
                                              int rank) {
  const std::uint32_t chunks = gives(step) ? state.given[rank] : state.taken[rank];
  const std::uint32_t lane = chunks % task.lanes;
  return {state.number * task.lanes + lane, state.before[gives(step)][rank][lane] + chunks / task.lanes};
}
PACE_HOST_DEVICE inline std::byte* slot_of(const WalkTask& task, const BlockState& state, const DeviceStep& step,
                                           int rank) {
  const ChunkPlace chunk = next_chunk(task, state, step, rank);
  const int owner = gives(step) ? rank : task.rank;
  const int source = gives(step) ? task.rank : rank;
  return task.windows[owner] + task.layout.chunk(place_of(source, owner), chunk.lane, chunk.number);
}

// A word that must have reached a number.
struct Awaited {
  const std::uint32_t* word = nullptr;  // nullptr: nothing
  std::uint32_t number = 0;
};
// Of a peer: room for a chunk in its ring, or its chunk.
PACE_HOST_DEVICE inline Awaited awaited_of_rank(const WalkTask& task, const BlockState& state, const DeviceStep& step,
                                                int rank) {
  if (!has_peer(step, rank)) return {};
  const WindowWords& mine = words(task.windows[task.rank]);
  const ChunkPlace chunk = next_chunk(task, state, step, rank);
  if (gives(step)) return {&mine.freed[rank][chunk.lane], chunk.number + 1 - task.layout.chunk_slots};
  return {&mine.ready[rank][chunk.lane], chunk.number + 1};
}
// Of another block of the channel.
PACE_HOST_DEVICE inline Awaited awaited_of_block(const WalkTask& task, const BlockState& state, const DeviceStep& step,
                                                 std::uint32_t block) {
  if (step.after == 0 || block >= task.blocks || block == state.block) return {};
  return {&task.progress[state.channel * task.blocks + block], state.steps_before + step.after};
}

// A word to be written when the step's data is where it belongs.
struct Told {
  std::uint32_t* word;
  std::uint32_t number;
};
// To a peer: that its chunk is there, or that this rank has taken it. Counts the chunk.
PACE_HOST_DEVICE inline Told tell_rank(const WalkTask& task, BlockState& state, const DeviceStep& step, int rank) {
  const ChunkPlace chunk = next_chunk(task, state, step, rank);
  WindowWords& theirs = words(task.windows[rank]);
  ++(gives(step) ? state.given : state.taken)[rank];
  auto& row = gives(step) ? theirs.ready : theirs.freed;
  return {&row[task.rank][chunk.lane], chunk.number + 1};
}
// To the other blocks: how many of the channel's steps this one has done.
PACE_HOST_DEVICE inline Told tell_blocks(const WalkTask& task, const BlockState& state, std::uint32_t steps) {
  return {&task.progress[state.number], state.steps_before + steps};
}

}  // namespace paceline::cuda
