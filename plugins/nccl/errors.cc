#include "errors.h"

#include <fmt/format.h>

#include <mutex>

#include "communicator.h"
#include "real_library.h"

namespace paceline::nccl {
namespace {

// As in NCCL itself, one for the process: watchdogs ask for it from other threads. Never destroyed, for the thread of
// an aborted communicator may outlive main().
struct Last {
  std::mutex mutex;
  NotedError newest;
  NotedError of_no_communicator;
};
Last& last() {
  static auto* error = new Last;
  return *error;
}

void note(ncclComm* comm, const std::string& sentence) {
  NotedError error;
  {
    const std::lock_guard lock(last().mutex);
    error = {last().newest.number + 1, sentence};
    last().newest = error;
    if (comm == nullptr) last().of_no_communicator = error;
  }
  if (comm == nullptr) return;
  const std::lock_guard lock(comm->mutex);
  comm->last_error = error;
}

}  // namespace

ncclResult_t fail(ncclComm* comm, ncclResult_t code, const std::string& sentence) {
  note(comm, sentence);
  return code;
}

ncclResult_t nccl_code(paceResult_t result) {
  switch (result) {
    case paceTimeout: {
      // Programs built for NCCL before 2.30 do not know ncclTimeout.
      const Real* library = real();
      return library == nullptr || library->version >= 23000 ? ncclTimeout : ncclRemoteError;
    }
    case paceMismatch:
    case paceUnsupported: return ncclInvalidUsage;
    case paceAborted: return ncclRemoteError;
    default: return static_cast<ncclResult_t>(result);  // the first eight have NCCL's numbers
  }
}

ncclResult_t failed_in_paceline(ncclComm* comm, paceResult_t result) {
  return fail(comm, nccl_code(result), paceGetLastError(nullptr));
}

ncclResult_t from_real(ncclComm* comm, ncclResult_t result) {
  if (is_error(result)) [[unlikely]]
    note(comm, {});
  return result;
}

ncclResult_t missing(ncclComm* comm, const char* function, const char* what) {
  return fail(comm, ncclInvalidArgument, fmt::format("{}: {} is NULL", function, what));
}

ncclResult_t fail_without_real(ncclComm* comm, const char* function, const std::string& need) {
  return fail(
      comm, ncclInvalidUsage,
      fmt::format("{} needs NCCL itself ({}), and {}. Install nvidia-nccl-cu13, or set PACELINE_NCCL_LIBRARY to "
                  "NCCL's libnccl.so.2",
                  function, need, why_no_real()));
}

ncclResult_t fail_to_forward(ncclComm* comm, const char* function) {
  const Real* library = real();
  if (library == nullptr) return fail_without_real(comm, function, why_not_served(function));
  return fail(
      comm, ncclInvalidUsage,
      fmt::format("{}: NCCL {} ({}) has no such function", function, version_text(library->version), library->path));
}

std::string last_sentence(ncclComm* comm) {
  NotedError own;
  if (comm != nullptr) {
    const std::lock_guard lock(comm->mutex);
    own = comm->last_error;
  }
  const std::lock_guard lock(last().mutex);
  if (own.number == 0) return last().newest.sentence;
  return own.number > last().of_no_communicator.number ? own.sentence : last().of_no_communicator.sentence;
}

}  // namespace paceline::nccl
