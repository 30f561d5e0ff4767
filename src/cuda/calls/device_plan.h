// A plan of the CUDA engine: one rank's part of an algorithm's schedule, as kernels walk it (walk.h). It is what runs
// where an algorithm is forced, instead of the kernels that fuse a whole collective (exchange.h).
//
// A plan is up to three walks, each a kernel: the input is copied aside where it is scaled first, or where the schedule
// would overwrite it; the schedule; and an average's division. No CUDA here: what a plan does can be tested anywhere.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "algorithms/table.h"
#include "base/status.h"
#include "cuda/calls/walk.h"
#include "engine/request.h"
#include "tuning/variant.h"

namespace paceline::cuda {

// How a schedule is spread over blocks. The same on every rank.
struct Spreading {
  int most_blocks = max_blocks;         // of a kernel
  std::uint64_t least_share = 8 << 10;  // bytes of a step that are worth another block; a multiple of 16
};

enum class Stage : std::uint8_t { set_aside, schedule, divide };

// One kernel of a plan.
struct Walk {
  Stage stage = Stage::schedule;
  std::array<std::uint32_t, max_channels + 1> begins{};  // channel c has the steps from begins[c] to begins[c + 1]
  int channels = 1;
  int blocks = 1;  // of a channel
  int lanes = 1;   // of a block
  std::uint16_t gives_to = 0;
  std::uint16_t takes_from = 0;
  bool waits = false;  // some step waits for other blocks
};

struct DevicePlan {
  std::vector<Walk> walks;
  std::vector<DeviceStep> steps;    // of all walks
  std::uint64_t scratch_bytes = 0;  // of the schedule, then of the input set aside
  std::uint64_t aside = 0;          // where that begins in the scratch
  std::uint8_t algorithm = 0;       // its number in the table, from 1
  int radix = 0;                    // asked for; 0: none
  std::size_t chunk_bytes = 0;
};

// An algorithm that is forced.
struct Forced {
  const Algorithm* algorithm = nullptr;
  Variant variant = {};                    // its chunk and radix
  std::shared_ptr<Paths> paths = nullptr;  // of the ranks' topology; nullptr: none is known
};

// The plan of a call by an algorithm that serves it.
Result<DevicePlan> device_plan(const Request& request, int rank, int ranks, const Forced& forced,
                               const Spreading& spreading = {});
// The walk of one rank's part of a schedule, whose steps go to the end of `steps`. longest: bytes of a step, at most;
// the same on every rank.
Result<Walk> walk_of(Schedule& schedule, int rank, std::size_t element, std::uint64_t longest,
                     const Spreading& spreading, std::vector<DeviceStep>& steps);

// Where a plan's memory lies on the GPU.
struct PlanMemory {
  const DeviceStep* steps = nullptr;
  std::uint32_t* progress = nullptr;  // max_blocks words, zero before the first run
  std::byte* scratch = nullptr;
};
// The argument of a walk's kernel for a call of the plan's shape. Windows, alarm and timeout are for the engine to fill
// in.
WalkTask task_of(const DevicePlan& plan, const Walk& walk, const Request& request, int rank, int ranks,
                 const PlanMemory& memory);

}  // namespace paceline::cuda
