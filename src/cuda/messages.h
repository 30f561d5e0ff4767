// Sends and receives through the window.
#pragma once

#include <span>

#include "cuda/launch.h"
#include "cuda/task.h"
#include "schedule/request.h"

namespace paceline::cuda {

// Sends and receives side by side, at most one in each direction with each peer, all of one type and of any lengths but
// 0. blocks: of a kernel that moves short ones, at most.
void plan_messages(std::span<const Request* const> messages, int rank, int ranks, int blocks, MessageTask& task,
                   Launch& launch);

}  // namespace paceline::cuda
