// How a communicator of this library comes into being: by NCCL alone, or by Paceline.
#pragma once

#include <functional>
#include <string>

#include "communicator.h"
#include "nccl_api.h"

namespace paceline::nccl {

// Empty: this process makes unique ids of Paceline's. Else why it makes NCCL's own.
std::string why_ids_are_nccls();
bool is_pacelines(const ncclUniqueId& id);

// The ranks of a new communicator of Paceline's agree who serves what: `made` takes `pace` over, or gives it up for a
// real communicator.
ncclResult_t agree(ncclComm* made, paceComm_t pace);

// What Paceline is told at the making of a communicator for a program of NCCL's: how long it may wait.
paceConfig_t patience();

// Join the other ranks with an id of Paceline's, then agree. made->rank and made->ranks are set.
ncclResult_t join(ncclComm* made, const ncclUniqueId& id);

// Hand `made` out and make it by `birth`, at once or at the end of the group: made_behind, on a thread of its own,
// whose start is ncclInProgress; until that has ended, the parent that it is made of takes no calls. The children of
// one parent are made one after another, as they were asked for. `out`: nullptr where this rank gets none.
ncclResult_t hand_out(ncclComm_t* out, ncclComm* made, std::function<ncclResult_t()> birth, ncclComm* parent = nullptr);

}  // namespace paceline::nccl
