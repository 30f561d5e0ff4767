// Who serves a new communicator: NCCL alone, Paceline, or both.
#pragma once

#include <string>

#include "nccl_api.h"
#include "paceline/paceline.h"

namespace paceline::nccl {

// Empty: this process makes unique ids of Paceline's. Else why it makes NCCL's own.
std::string why_ids_are_nccls();
bool is_pacelines(const ncclUniqueId& id);

// The ranks of a new communicator of Paceline's agree who serves what: `made` takes `pace` over, or gives it up for a
// real communicator.
ncclResult_t agree(ncclComm* made, paceComm_t pace);

}  // namespace paceline::nccl
