// Sends and receives through the window.
#pragma once

#include <span>

#include "cuda/calls/launch.h"
#include "cuda/calls/task.h"
#include "engine/request.h"

namespace paceline::cuda {

// A message of no elements passes so many bytes on, for its other side waits for it as for others. It is announced by
// its type, with this mark.
inline constexpr std::uint64_t bytes_for_none = 16;
inline constexpr std::uint8_t mark_of_none = 0x80;
static_assert(data_type_count <= mark_of_none);

// Sends and receives side by side, at most one in each direction with each peer. One of no elements has bytes_for_none
// in its place, aligned to 16. blocks: of a kernel that moves short ones, at most.
void plan_messages(std::span<const Request* const> messages, int rank, int ranks, int blocks, MessageTask& task,
                   Launch& launch);

}  // namespace paceline::cuda
