// How the functions of this library end: one code, and a sentence for ncclGetLastError.
#pragma once

#include <cstdint>
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

// Note the sentence as the last error: of the process, and of the communicator or, for nullptr, of this thread.
ncclResult_t fail(ncclComm* comm, ncclResult_t code, const std::string& sentence);
// A call of paceline.h failed, on this thread: its sentence is the last error.
ncclResult_t failed_in_paceline(ncclComm* comm, paceResult_t result);
// Likewise a group with calls on these communicators.
ncclResult_t failed_in_paceline(const std::vector<ncclComm*>& comms, paceResult_t result);
// What the real library returned: on an error its own sentence is the last one.
ncclResult_t from_real(ncclComm* comm, ncclResult_t result);

ncclResult_t nccl_code(paceResult_t result);

// An argument that may not be NULL is.
ncclResult_t missing(ncclComm* comm, const char* function, const char* what);
// `function` needs the real library, which is not there.
ncclResult_t fail_without_real(ncclComm* comm, const char* function, const std::string& need);
// The real library is older than `function`, or there is none.
ncclResult_t fail_to_forward(ncclComm* comm, const char* function);

// Of two results of one group: an error before ncclInProgress before success; of two errors the first.
inline ncclResult_t worse(ncclResult_t first, ncclResult_t second) {
  if (first == ncclSuccess || (first == ncclInProgress && second != ncclSuccess)) return second;
  return first;
}

// The last error's sentence; empty: the real library has it, or there is none. A communicator's: its own, or a later
// one of this thread that was no communicator's, as that of a group of NCCL's is.
std::string last_sentence(ncclComm* comm);

}  // namespace paceline::nccl
