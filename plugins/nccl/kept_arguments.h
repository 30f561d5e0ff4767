// What a call's pointers lead to, kept for a call that waits for the end of the thread's group: as with NCCL, which
// copies it in the call, it is the program's again when that returns.
#pragma once

#include <memory>

#include "nccl_api.h"

namespace paceline::nccl {

using Kept = std::shared_ptr<const void>;

// Inside a group: copies, to which the arguments point from now on, for as long as the result lives.
Kept keep_for_group(ncclComm_t comm, const ncclDevCommRequirements_t*& wanted, ncclDevComm_t* out);
Kept keep_for_group(int count, ncclWaitSignalDesc_t*& signals, ncclComm_t comm, cudaStream_t stream);
// Of all other calls nothing is read that the program may take back.
template <class... Arguments>
Kept keep_for_group(Arguments&...) {
  return {};
}

}  // namespace paceline::nccl
