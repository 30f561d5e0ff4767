// How what goes through the window is cut, into strips or chunks, and how its kernel is launched. The same for the same
// call on every rank. No CUDA here.
#pragma once

#include <cstdint>

#include "cuda/calls/task.h"
#include "cuda/memory/window.h"
#include "tuning/gpu_table.h"

namespace paceline::cuda {

using Family = GpuFamily;

struct Launch {
  Family family = Family::brief;
  int blocks = 1;
  int threads = 0;      // of a block; 0: the family's
  int cluster = 1;      // blocks of one part of the GPU (a thread block cluster, from sm_90 on)
  bool relays = false;  // strips: what has been taken goes on at once
  bool once = false;    // by strips, without rounds
};

// A table's way in no more than so many blocks.
GpuWay in_blocks(GpuWay way, int blocks);

// Chunks short enough to fill the pipeline, long enough to be worth their flags. Both sides of a message cut it alike.
Cut cut(std::uint64_t bytes, const WindowLayout& layout, bool short_chunks, const GpuWay& way = {});
// A kernel for chunks in so many lanes.
Launch by_chunks(std::uint32_t lanes);

// Strips of so many bytes, at least one.
std::uint32_t strips_of(std::uint64_t bytes);

Stride stride_of(Family family);

// How strips are moved.
struct Form {
  Family family;
  Stride stride = stride_of(family);
  // Lanes of a block of so many, if each takes `width` warps: of what has rings.
  [[nodiscard]] std::uint32_t most_lanes(int width, int blocks) const;
  // Whether so many strips can be moved at once.
  [[nodiscard]] bool has_room(std::uint32_t strips, int width, int blocks) const;
};

// A kernel with `width` warps for each lane, in as many blocks as there may be; and the warp of each that moves no
// data. in_block: of lanes; 0: chosen, where there are rounds so that the last one has about as much as the others.
Launch by_strips(const Form& form, std::uint32_t lanes, int width, int blocks, std::uint32_t in_block);
// For so many strips, with `width` warps for each, by the way's form, or by the next one that has room for them.
Launch by_strips(const GpuWay& way, std::uint32_t strips, int width);
// Of a long call: stores to the peers hinder each other less so (direct_moves.cuh).
void lay_in_clusters(Launch& launch);

}  // namespace paceline::cuda
