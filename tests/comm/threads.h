// Communicators whose ranks are threads of this process, made as a user makes them: paceGetUniqueId, paceCommInitRank.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "paceline/paceline.h"

namespace paceline::testing {

// Runs function(rank) for each rank in a thread of its own. A rank says what is wrong, and the test fails; empty: all
// is well. It is written at once, for others may wait for that rank until the test's time is up.
template <class Function>
void on_every_rank(int ranks, Function function) {
  std::vector<std::string> complaints(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::string& complaint = complaints[static_cast<std::size_t>(rank)];
      complaint = function(rank);
      if (!complaint.empty()) std::fprintf(stderr, "rank %d of %d: %s\n", rank, ranks, complaint.c_str());
    });
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < ranks; ++rank) {
    INFO("rank ", rank, " of ", ranks);
    CHECK(complaints[static_cast<std::size_t>(rank)] == "");
  }
}

// A complaint unless `result` is `wanted`; the last error goes with it.
inline std::string expect(paceResult_t result, paceResult_t wanted = paceSuccess) {
  if (result == wanted) return "";
  return std::string(paceGetErrorString(result)) + " instead of " + paceGetErrorString(wanted) + ": " +
         paceGetLastError(nullptr);
}

// Leave the rank's function with the complaint, if there is one.
#define PACE_EXPECT(...)                                                             \
  do {                                                                               \
    if (auto complaint = paceline::testing::expect(__VA_ARGS__); !complaint.empty()) \
      return std::to_string(__LINE__) + ": " + complaint;                            \
  } while (false)
#define PACE_REQUIRE(condition)                                                       \
  do {                                                                                \
    if (!(condition)) return std::to_string(__LINE__) + std::string(": " #condition); \
  } while (false)

// One communicator of `ranks` ranks, all of them here.
class Ranks {
 public:
  explicit Ranks(int ranks, paceConfig_t config = PACE_CONFIG_INITIALIZER) : handles_(static_cast<std::size_t>(ranks)) {
    if (config.timeoutSeconds == 0) config.timeoutSeconds = 60;
    paceUniqueId id{};
    REQUIRE(paceGetUniqueId(&id) == paceSuccess);
    on_every_rank(ranks, [&](int rank) {
      return expect(paceCommInitRankConfig(&handles_[static_cast<std::size_t>(rank)], ranks, id, rank, &config));
    });
  }
  ~Ranks() {
    for (paceComm_t handle : handles_) paceCommDestroy(handle);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(handles_.size()); }
  paceComm_t operator[](int rank) const { return handles_[static_cast<std::size_t>(rank)]; }

  // function(rank, communicator)
  template <class Function>
  void run(Function function) const {
    on_every_rank(size(), [&](int rank) { return function(rank, (*this)[rank]); });
  }

 private:
  std::vector<paceComm_t> handles_;
};

}  // namespace paceline::testing
