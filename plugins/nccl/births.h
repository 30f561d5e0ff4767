// How a communicator of Paceline's comes into being: at once, at the end of a group, or behind the program's back.
#pragma once

#include <functional>

#include "communicator.h"
#include "nccl_api.h"

namespace paceline::nccl {

// What Paceline is told at the making of a communicator for a program of NCCL's: how long it may wait.
paceConfig_t patience();

// Join the other ranks with an id of Paceline's, then agree (serving.h). made->rank and made->ranks are set.
ncclResult_t join(ncclComm* made, const ncclUniqueId& id);

// Hand `made` out and make it by `birth`, at once or at the end of the group: made_behind, on a thread of its own,
// whose start is ncclInProgress; until that has ended, the parent that it is made of takes no calls. The children of
// one parent are made one after another, as they were asked for. `out`: nullptr where this rank gets none.
ncclResult_t hand_out(ncclComm_t* out, ncclComm* made, std::function<ncclResult_t()> birth, ncclComm* parent = nullptr);

}  // namespace paceline::nccl
