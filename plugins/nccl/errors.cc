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
  std::string sentence;
};
Last& last() {
  static auto* error = new Last;
  return *error;
}

void note(ncclComm* comm, const std::string& sentence) {
  {
    const std::lock_guard lock(last().mutex);
    last().sentence = sentence;
  }
  if (comm == nullptr) return;
  const std::lock_guard lock(comm->mutex);
  comm->last_error = sentence;
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
  if (comm != nullptr) {
    const std::lock_guard lock(comm->mutex);
    if (!comm->last_error.empty()) return comm->last_error;
  }
  const std::lock_guard lock(last().mutex);
  return last().sentence;
}

}  // namespace paceline::nccl
