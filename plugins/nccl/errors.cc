#include "errors.h"

#include <fmt/format.h>

#include <mutex>

#include "base/of_thread.h"
#include "communicator.h"
#include "real_library.h"

namespace paceline::nccl {
namespace {

// As in NCCL itself, one for the process: watchdogs ask for it from other threads. Never destroyed, for the thread of
// an aborted communicator may outlive main().
struct Last {
  std::mutex mutex;
  NotedError newest;
};
Last& last() {
  static auto* error = new Last;
  return *error;
}
// This thread's: one of another's says nothing of a communicator that has an error of its own.
NotedError& of_no_communicator() { return of_thread<NotedError>(); }

void note(Whose whose, const std::string& sentence) {
  NotedError error;
  {
    const std::lock_guard lock(last().mutex);
    error = {last().newest.number + 1, sentence};
    last().newest = error;
  }
  if (whose.comms().empty()) of_no_communicator() = error;
  for (ncclComm* comm : whose.comms()) {
    const std::lock_guard lock(comm->mutex);
    comm->last_error = error;
  }
}

}  // namespace

ncclResult_t fail(Whose whose, ncclResult_t code, const std::string& sentence) {
  note(whose, sentence);
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

ncclResult_t failed_in_paceline(Whose whose, paceResult_t result) {
  return fail(whose, nccl_code(result), paceGetLastError(nullptr));
}

ncclResult_t failed_in_real(Whose whose, ncclResult_t result) { return fail(whose, result, {}); }

ncclResult_t fail_unwanted() {
  return fail(nullptr, nccl_code(paceAborted), "the communicator was aborted while it was being made");
}

ncclResult_t missing(Whose whose, const char* function, const char* what) {
  return fail(whose, ncclInvalidArgument, fmt::format("{}: {} is NULL", function, what));
}

ncclResult_t fail_without_real(Whose whose, const char* function, const std::string& need) {
  return fail(
      whose, ncclInvalidUsage,
      fmt::format("{} needs NCCL itself ({}), and {}. Install nvidia-nccl-cu13, or set PACELINE_NCCL_LIBRARY to "
                  "NCCL's libnccl.so.2",
                  function, need, why_no_real()));
}

ncclResult_t fail_to_forward(Whose whose, const char* function) {
  const Real* library = real();
  if (library == nullptr) return fail_without_real(whose, function, why_not_served(function));
  return fail(
      whose, ncclInvalidUsage,
      fmt::format("{}: NCCL {} ({}) has no such function", function, version_text(library->version), library->path));
}

std::string last_sentence(ncclComm* comm) {
  if (comm != nullptr) {
    const std::lock_guard lock(comm->mutex);
    const NotedError& own = comm->last_error;
    if (own.number < of_no_communicator().number) return of_no_communicator().sentence;
    if (own.number != 0) return own.sentence;
  }
  const std::lock_guard lock(last().mutex);
  return last().newest.sentence;
}

}  // namespace paceline::nccl
