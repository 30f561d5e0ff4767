#include "forward.h"

#include <fmt/format.h>

namespace paceline::nccl {
namespace {

ncclResult_t refuse_unmade(ncclComm* comm, const char* function) {
  return fail(comm, ncclInvalidUsage,
              fmt::format("{}: NCCL has not made the communicator: its making failed, or has not ended (ncclGroupEnd; "
                          "ncclCommGetAsyncError until it is no more in progress)",
                          function));
}

}  // namespace

ncclResult_t forward_later(ncclComm* comm, State state, const char* function, bool exists,
                           std::function<ncclResult_t()> call) {
  if (state != State::ready) return refuse(comm, state, function);
  Group& open = group();
  if (real_of(comm) == nullptr) {
    if (comm->pace == nullptr && !exists) return fail_to_forward(comm, function);
    if (comm->pace == nullptr) return refuse_unmade(comm, function);
    if (open.depth > 0) {
      open.deferred.push_back({comm, function, exists, std::move(call)});
      return ncclSuccess;
    }
    if (ncclResult_t made = make_real({comm}, function, exists); made != ncclSuccess) return made;
  } else if (!exists) {
    return fail_to_forward(comm, function);
  }
  if (ncclResult_t joined = join_real_group(comm); joined != ncclSuccess) return joined;
  return call();
}

ncclResult_t refuse_question(ncclComm* comm, State state, const char* function, bool exists) {
  if (state != State::ready) return refuse(comm, state, function);
  if (!exists) return fail_to_forward(comm, function);
  if (comm->pace == nullptr) return refuse_unmade(comm, function);
  return fail(comm, ncclInvalidUsage,
              fmt::format("{}: NCCL has no communicator beside Paceline's yet: one comes with a call that all ranks "
                          "make (ncclCommWindowRegister, ncclDevCommCreate), or by PACELINE_NCCL_FORWARD",
                          function));
}

}  // namespace paceline::nccl
