// Finalizations of communicators of Paceline's, which wait for their calls.
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/served_ranks.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

// Two ranks, of which the first has a sum on a stream: it waits for the second to come.
struct OnAStream {
  std::vector<ncclComm_t> comms;
  paceHostStream_t stream = nullptr;
  int value = 1;

  explicit OnAStream(std::vector<ncclComm_t> made = {nullptr, nullptr}) : comms(std::move(made)) {
    if (comms[0] == nullptr) REQUIRE(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
    REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
    const auto cuda = reinterpret_cast<cudaStream_t>(stream);
    CHECK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], cuda) == ncclSuccess);
  }
  ~OnAStream() { (void)paceHostStreamDestroy(stream); }
  OnAStream(const OnAStream&) = delete;
  OnAStream& operator=(const OnAStream&) = delete;

  void come() const {
    int theirs = 2;
    CHECK(ncclAllReduce(&theirs, &theirs, 1, ncclInt32, ncclSum, comms[1], nullptr) == ncclSuccess);
  }
};

}  // namespace

TEST_CASE("a finalization waits for the communicator's calls on streams") {
  const Door door(has_engine, nullptr, nullptr);
  const OnAStream waiting;
  ncclResult_t result = ncclInternalError;
  int seen = 0;
  std::thread finalizer([&] {
    result = ncclCommFinalize(waiting.comms[0]);
    seen = waiting.value;
  });
  CHECK(comes([&] { return nccl::state_of(waiting.comms[0]) == nccl::State::finalized; }));
  waiting.come();
  finalizer.join();
  CHECK(result == ncclSuccess);
  CHECK(seen == 3);
  for (ncclComm_t comm : waiting.comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("a nonblocking communicator is in progress until its calls have ended, and a destroy waits for them") {
  const Door door(has_engine, nullptr, nullptr);
  for (const bool at_once : {false, true}) {
    const OnAStream waiting(nonblocking_ranks(2));
    const ncclComm_t comm = waiting.comms[0];
    CHECK(ncclCommFinalize(comm) == ncclInProgress);
    ncclResult_t state = ncclSuccess;
    CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    CHECK(state == ncclInProgress);
    CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
    std::thread other;
    if (at_once)
      other = std::thread([&] {
        CHECK(comes([&] { return nccl::state_of(comm) == nccl::State::destroying; }));
        waiting.come();
      });
    else
      waiting.come();
    for (; !at_once && state == ncclInProgress; std::this_thread::yield())
      REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    if (!at_once) {
      CHECK(state == ncclSuccess);
      CHECK(waiting.value == 3);
    }
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    CHECK(waiting.value == 3);
    if (other.joinable()) other.join();
    CHECK(ncclCommDestroy(waiting.comms[1]) == ncclSuccess);
  }
}

TEST_CASE("in a group a finalization waits for the group's calls") {
  const Door door(has_engine, nullptr, nullptr);
  ncclComm_t comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  int values[2] = {1, 2};
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int i = 0; i < 2; ++i) {
    CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms[i], nullptr) == ncclSuccess);
    CHECK(ncclCommFinalize(comms[i]) == ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  for (int value : values) CHECK(value == 3);
  ncclResult_t state = ncclInProgress;
  CHECK(ncclCommGetAsyncError(comms[1], &state) == ncclSuccess);
  CHECK(state == ncclSuccess);
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("an abort ends a finalization") {
  const Door door(has_engine, nullptr, nullptr);
  const OnAStream waiting;
  std::thread finalizer([&] { CHECK(ncclCommFinalize(waiting.comms[0]) == ncclRemoteError); });
  CHECK(comes([&] { return nccl::state_of(waiting.comms[0]) == nccl::State::finalized; }));
  CHECK(ncclCommAbort(waiting.comms[0]) == ncclSuccess);
  finalizer.join();
  CHECK(ncclCommAbort(waiting.comms[1]) == ncclSuccess);

  const OnAStream behind(nonblocking_ranks(2));
  CHECK(ncclCommFinalize(behind.comms[0]) == ncclInProgress);
  for (ncclComm_t comm : behind.comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}
