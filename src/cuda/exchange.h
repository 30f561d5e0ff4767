// Collectives as exchanges: which piece of its memory a rank gives to each peer, and what it takes from each.
//
// With two ranks one exchange is every collective at its fewest bytes. With more, long all-reduces and broadcasts are
// two: reduce-scatter or scatter, then all-gather, so that each rank sends 2 M (n-1)/n and every link works in both
// directions: in one kernel that relays what it has folded or taken, or in two in a row. Which of all this a call is,
// and in how many blocks, a table says (tuning/gpu_table.h), as far as it can be. No CUDA here: what a call does can be
// tested anywhere.
#pragma once

#include <array>
#include <span>

#include "cuda/task.h"
#include "schedule/request.h"
#include "tuning/gpu_table.h"

namespace paceline::cuda {

using Family = GpuFamily;

// Where Call::what says by which way of a table a call goes, so that ranks with different tables find out. Roots are
// short here; walks have their algorithm behind it (walk.h).
inline constexpr int way_shift = 16;
inline constexpr int way_bits = 8;

// How an exchange is launched. The same for the same call on every rank.
struct Launch {
  Family family = Family::brief;
  int blocks = 1;
  int threads = 0;      // of a block; 0: the family's
  int cluster = 1;      // blocks of one part of the GPU (a thread block cluster, from sm_90 on)
  bool relays = false;  // strips: what has been taken goes on at once
  bool once = false;    // by strips, without rounds
};

// A collective's exchanges for one rank, to be run one after the other. Windows, alarm and timeout are for the engine
// to fill in.
struct Exchanges {
  int count = 0;
  std::array<Task, 2> tasks;
  std::array<Launch, 2> launches;
};
// A table's way in no more than so many blocks.
GpuWay in_blocks(GpuWay way, int blocks);
// way: what the table says, the same on every rank. dummy: memory of max_gpus * 8 bytes that barriers pass on.
void plan_collective(const Request& request, int rank, int ranks, const GpuWay& way, std::byte* dummy,
                     Exchanges& exchanges);

// What goes by the users' buffers (direct.h), for one rank, and what is done where some rank does not see them; false:
// not this call, on no rank. Where the others see the buffers is for the engine to fill in.
bool plan_direct_task(const Request& request, int rank, int ranks, const GpuWay& way, DirectTask& task, Launch& launch);

// What is passed on by strips (passed_strips.cuh), for one rank; false: not this call, on no rank.
bool plan_passed_strips(const Request& request, int rank, int ranks, const GpuWay& way, PassTask& task, Launch& launch);

// Of any kernel's argument: which call it is of; and how the elements of a reduction are computed with.
void start(Terms& terms, int rank, int ranks, const Request& request);
void set_operation(Terms& terms, const Request& request);

// Sends and receives side by side, at most one in each direction with each peer, all of one type and of any lengths but
// 0. blocks: of a kernel that moves short ones, at most.
void plan_messages(std::span<const Request* const> messages, int rank, int ranks, int blocks, MessageTask& task,
                   Launch& launch);

}  // namespace paceline::cuda
