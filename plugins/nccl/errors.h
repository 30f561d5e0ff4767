// How the functions of this library end: one code, and a sentence for ncclGetLastError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nccl_api.h"
#include "paceline/paceline.h"

namespace paceline::nccl {

inline bool is_error(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

// An error's number among those of the process, from 1 on (0: there was none), and its sentence; empty: the real
// library has it.
struct NotedError {
  std::uint64_t number = 0;
  std::string sentence;
};

// Whose an error is: a communicator's, all those of a group's calls, or this thread's. For arguments: it points to
// them.
class Whose {
 public:
  Whose(std::nullptr_t) {}
  Whose(ncclComm* const& comm) : comms_(&comm, comm == nullptr ? 0 : 1) {}
  Whose(const std::vector<ncclComm*>& comms) : comms_(comms) {}
  [[nodiscard]] std::span<ncclComm* const> comms() const { return comms_; }

 private:
  std::span<ncclComm* const> comms_;  // none: this thread's
};

// Note the sentence as the last error: of the process, and of whose it is.
ncclResult_t fail(Whose whose, ncclResult_t code, const std::string& sentence);
// A call of paceline.h failed, on this thread: its sentence is the last error.
ncclResult_t failed_in_paceline(Whose whose, paceResult_t result);
// The real library did: its own sentence is the last error.
ncclResult_t failed_in_real(Whose whose, ncclResult_t result);
// What the real library returned.
inline ncclResult_t from_real(const auto& whose, ncclResult_t result) {
  return is_error(result) ? failed_in_real(whose, result) : result;
}

ncclResult_t nccl_code(paceResult_t result);

// An argument that may not be NULL is.
ncclResult_t missing(Whose whose, const char* function, const char* what);
// The program has aborted the communicator while it was made.
ncclResult_t fail_unwanted();
// `function` needs the real library, which is not there.
ncclResult_t fail_without_real(Whose whose, const char* function, const std::string& need);
// The real library is older than `function`, or there is none.
ncclResult_t fail_to_forward(Whose whose, const char* function);

// Of two results of one group: an error before ncclInProgress before success; of two errors the first.
inline ncclResult_t worse(ncclResult_t first, ncclResult_t second) {
  if (first == ncclSuccess || (first == ncclInProgress && second != ncclSuccess)) return second;
  return first;
}

// The last error's sentence; empty: the real library has it, or there is none. A communicator's: its own, or a later
// one of this thread that was no communicator's.
std::string last_sentence(ncclComm* comm);

}  // namespace paceline::nccl
