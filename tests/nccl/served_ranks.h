// Ranks of communicators that Paceline serves: its host buffers and host streams stand for a GPU's.
#pragma once

#include <stdlib.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "nccl/communicator.h"
#include "nccl/door.h"

// Leave the rank's function with a complaint unless the call succeeds.
#define NCCL_EXPECT(call)                                                                             \
  do {                                                                                                \
    if (ncclResult_t nccl_result = (call); nccl_result != ncclSuccess)                                \
      return std::to_string(__LINE__) + ": " + ncclGetErrorString(nccl_result) + ": " + last_error(); \
  } while (false)

namespace paceline::testing {

inline ncclConfig_t nonblocking() {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = NCCL_API_MAGIC;
  config.blocking = 0;
  return config;
}

// function(rank, communicator) on every rank of one communicator, which blocks or not.
template <class Function>
void on_ranks(int ranks, bool blocking, Function function) {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  on_every_rank(ranks, [&](int rank) -> std::string {
    ncclConfig_t config = nonblocking();
    ncclComm_t comm = nullptr;
    const ncclResult_t asked =
        blocking ? ncclCommInitRank(&comm, ranks, id, rank) : ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
    if (asked != ncclInProgress) NCCL_EXPECT(asked);
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
      NCCL_EXPECT(ncclCommGetAsyncError(comm, &state));
    std::string complaint = function(rank, comm);
    NCCL_EXPECT(ncclCommDestroy(comm));
    return complaint;
  });
}

template <class Function>
void on_ranks(int ranks, Function function) {
  on_ranks(ranks, true, function);
}

// Whether the state comes while a test may wait for it.
template <class Condition>
bool comes(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  return condition();
}

using Floats = std::vector<float>;

// Every communicator of NCCL's is, whatever its configuration says.
struct NonblockingByVariable {
  NonblockingByVariable() { ::setenv("NCCL_COMM_BLOCKING", "0", 1); }
  ~NonblockingByVariable() { ::unsetenv("NCCL_COMM_BLOCKING"); }
  NonblockingByVariable(const NonblockingByVariable&) = delete;
  NonblockingByVariable& operator=(const NonblockingByVariable&) = delete;
};

// Made behind the program's back, and ready.
inline std::vector<ncclComm_t> nonblocking_ranks(int ranks) {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = nonblocking();
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    CHECK(ncclCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], ranks, id, rank, &config) == ncclInProgress);
  for (ncclComm_t comm : comms)
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
      REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  return comms;
}

}  // namespace paceline::testing
