// Collectives as exchanges: which piece of its memory a rank gives to each peer, and what it takes from each.
//
// With two ranks one exchange is every collective at its fewest bytes. With more, long all-reduces and broadcasts are
// two: reduce-scatter or scatter, then all-gather, so that each rank sends 2 M (n-1)/n and every link works in both
// directions: in one kernel that relays what it has folded or taken, or in two in a row. Which of all this a call is,
// and in how many blocks, a table says (tuning/gpu_table.h), as far as it can be. No CUDA here: what a call does can be
// tested anywhere.
#pragma once

#include <array>

#include "cuda/calls/launch.h"
#include "cuda/calls/task.h"
#include "engine/request.h"
#include "tuning/gpu_table.h"

namespace paceline::cuda {

// Where Call::what says by which way of a table a call goes, so that ranks with different tables find out. Roots are
// short here; walks have their algorithm behind it (walk.h).
inline constexpr int way_shift = 16;
inline constexpr int way_bits = 8;

// A collective's exchanges for one rank, to be run one after the other. Windows, alarm and timeout are for the engine
// to fill in.
struct Exchanges {
  int count = 0;
  std::array<Task, 2> tasks;
  std::array<Launch, 2> launches;
};
// What the table says, which was measured with even calls (direct.h). Uneven parts that follow each other go direct
// earlier, for through the window they go in small pieces. The same on every rank.
GpuWay way_of_call(const GpuTable& table, const Request& request, int ranks);
inline constexpr std::uint64_t uneven_direct_from = 8 << 20;    // bytes, of all parts together
inline constexpr std::uint64_t bytes_direct_from = 1536 << 10;  // where they would be stored byte by byte

// way: what the table says, the same on every rank. dummy: memory of max_gpus * 8 bytes that barriers pass on,
// and collectives of no elements, in which the ranks meet as in a barrier: so they learn of a count that differs.
void plan_collective(const Request& request, int rank, int ranks, const GpuWay& way, std::byte* dummy,
                     Exchanges& exchanges);

// What goes by the users' buffers (direct.h), for one rank, and what is done where some rank does not see them; false:
// not this call, on no rank. Where the others see the buffers is for the engine to fill in.
bool plan_direct_task(const Request& request, int rank, int ranks, const GpuWay& way, DirectTask& task, Launch& launch);

// What is passed on by strips (passed_strips.cuh), for one rank; false: not this call, on no rank.
bool plan_passed_strips(const Request& request, int rank, int ranks, const GpuWay& way, PassTask& task, Launch& launch);

// Of any kernel's argument: which call it is of; what its addresses, put together, have in common; and how the elements
// of a reduction are computed with.
void start(Terms& terms, int rank, int ranks, const Request& request);
void align(Terms& terms, std::uintptr_t addresses);
void set_operation(Terms& terms, const Request& request);

}  // namespace paceline::cuda
