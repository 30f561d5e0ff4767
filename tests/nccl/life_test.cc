// The end, state, operators and registrations of communicators of Paceline's that are there.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/ranks.h"
#include "nccl/served_ranks.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

std::size_t entries_of(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// Two ranks, of which the first is inside a call on a thread of its own: it waits for the second until it is aborted.
struct InsideACall {
  ncclComm_t comms[2] = {};
  std::thread thread;

  InsideACall() {
    REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
    thread = std::thread([comm = comms[0]] {
      int value = 1;
      CHECK(ncclGroupStart() == ncclSuccess);
      CHECK(ncclSend(&value, 1, ncclInt32, 1, comm, nullptr) == ncclSuccess);
      CHECK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr) == ncclSuccess);
      CHECK(ncclGroupEnd() == ncclRemoteError);
    });
    int value = 0;
    CHECK(ncclRecv(&value, 1, ncclInt32, 0, comms[1], nullptr) == ncclSuccess);
  }
  ~InsideACall() {
    CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
    thread.join();
    CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
  }
  InsideACall(const InsideACall&) = delete;
  InsideACall& operator=(const InsideACall&) = delete;
};

}  // namespace

TEST_CASE("an abort ends a call that waits, and says so") {
  const Door door(has_engine, nullptr, nullptr);
  std::atomic<ncclComm_t> waiting{nullptr};
  on_ranks(2, [&](int rank, ncclComm_t comm) -> std::string {
    if (rank == 0) {
      waiting = comm;
      waiting.notify_all();
      int value = 1;
      PACE_REQUIRE(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr) == ncclRemoteError);
      ncclResult_t state = ncclSuccess;
      NCCL_EXPECT(ncclCommGetAsyncError(comm, &state));
      PACE_REQUIRE(state == ncclRemoteError);
      PACE_REQUIRE(!last_error(comm).empty());
    } else {
      waiting.wait(nullptr);
      NCCL_EXPECT(ncclCommRevoke(comm, 0));
      PACE_REQUIRE(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, comm, nullptr) == ncclInvalidUsage);
      PACE_REQUIRE(last_error(comm) == "ncclAllReduce: the communicator has been revoked");
    }
    return "";
  });
}

TEST_CASE("no communicator can be finalized and revoked, as in NCCL") {
  CHECK(ncclCommFinalize(nullptr) == ncclSuccess);
  CHECK(ncclCommRevoke(nullptr, 0) == ncclSuccess);
}

TEST_CASE("a revocation with flags that there are not does nothing") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    int value = 1;
    PACE_REQUIRE(ncclCommRevoke(comm, 5) == ncclInvalidArgument);
    PACE_REQUIRE(last_error(comm) == "ncclCommRevoke: there are no flags 5");
    NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
    return "";
  });
}

TEST_CASE("a finalized and a suspended communicator take no calls, and are what they were") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    int value = 1;
    std::uint64_t suspended = 0;
    NCCL_EXPECT(ncclCommSuspend(comm, 1));
    NCCL_EXPECT(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &suspended));
    PACE_REQUIRE(suspended == 1);
    PACE_REQUIRE(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr) == ncclInvalidUsage);
    NCCL_EXPECT(ncclCommResume(comm));
    NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
    NCCL_EXPECT(ncclCommFinalize(comm));
    PACE_REQUIRE(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr) == ncclInvalidUsage);
    PACE_REQUIRE(last_error(comm) == "ncclAllReduce: the communicator has been finalized");
    int count = 0, mine = -1;
    NCCL_EXPECT(ncclCommCount(comm, &count));
    NCCL_EXPECT(ncclCommUserRank(comm, &mine));
    PACE_REQUIRE(count == 1);
    PACE_REQUIRE(mine == 0);
    return "";
  });
}

TEST_CASE("a communicator that NCCL beside it cannot suspend, or resume, stays what it was") {
  const Door door(has_engine, "gather");
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    int one = 1;
    {
      const Failing failing("ncclCommSuspend", ncclSystemError);
      PACE_REQUIRE(ncclCommSuspend(comm, 1) == ncclSystemError);
    }
    NCCL_EXPECT(ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum, comm, nullptr));
    NCCL_EXPECT(ncclCommSuspend(comm, 1));
    {
      const Failing failing("ncclCommResume", ncclSystemError);
      PACE_REQUIRE(ncclCommResume(comm) == ncclSystemError);
    }
    PACE_REQUIRE(ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum, comm, nullptr) == ncclInvalidUsage);
    NCCL_EXPECT(ncclCommResume(comm));
    return "";
  });
}

TEST_CASE("registrations are handles of ours, and go to NCCL where it is") {
  const Door door(has_engine, "gather");
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    void* handle = nullptr;
    NCCL_EXPECT(ncclCommRegister(comm, at<void>(16), 8, &handle));
    PACE_REQUIRE(handle != at<void>(0x1234));
    ncclWindow_t window = nullptr;
    NCCL_EXPECT(ncclCommWindowRegister(comm, at<void>(16), 8, &window, 1));
    NCCL_EXPECT(ncclCommFinalize(comm));
    NCCL_EXPECT(ncclCommDeregister(comm, handle));
    PACE_REQUIRE(ncclCommDeregister(comm, handle) == ncclInvalidArgument);
    NCCL_EXPECT(ncclCommWindowDeregister(comm, window));
    return "";
  });
  const std::string calls = Door::calls();
  CHECK(calls.find("ncclCommRegister(comm") != std::string::npos);
  CHECK(calls.find(", " + std::to_string(0x1234) + ")\n") != std::string::npos);
}

TEST_CASE("beside an NCCL that knows of no registration a buffer is registered all the same") {
  nccl::Real older = fake();
  older.version = 21805;
  older.ncclCommRegister = nullptr;
  older.ncclCommDeregister = nullptr;
  const Door door(has_engine, "gather", &older);
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    void* handle = nullptr;
    NCCL_EXPECT(ncclCommRegister(comm, at<void>(16), 8, &handle));
    NCCL_EXPECT(ncclCommDeregister(comm, handle));
    return "";
  });
}

TEST_CASE("Paceline's errors are NCCL's codes, with Paceline's sentence") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    int value = 1;
    PACE_REQUIRE(ncclBroadcast(&value, &value, 1, ncclInt32, 7, comm, nullptr) == ncclInvalidArgument);
    PACE_REQUIRE(last_error(comm) == "broadcast: root 7 is not among the ranks 0..0");
    return "";
  });
}

TEST_CASE("of two threads that abort a nonblocking communicator one does") {
  const Door door(has_engine, nullptr, nullptr);
  for (int round = 0; round < 300; ++round) {
    const ncclComm_t comm = nonblocking_ranks(1)[0];
    std::atomic<int> there = 0;
    ncclResult_t results[2] = {};
    const auto abort = [&](ncclResult_t& result) {
      for (++there; there < 2;) {
      }
      result = ncclCommAbort(comm);
    };
    std::thread other(abort, std::ref(results[1]));
    abort(results[0]);
    other.join();
    CHECK(results[0] + results[1] == ncclSuccess + ncclInvalidArgument);
  }
}

TEST_CASE("a forked child may destroy its copies of nonblocking communicators") {
  const Door door(has_engine, nullptr, nullptr);
  const auto comms = nonblocking_ranks(2);
  Child child([&](const Child::Say& say) {
    for (ncclComm_t comm : comms) say(std::to_string(ncclCommDestroy(comm)));
  });
  for (int i = 0; i < 2; ++i) CHECK(child.line() == "0");
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("an abort beside a call frees the communicator when that has ended") {
  const Door door(has_engine, nullptr, nullptr);
  { const InsideACall first; }  // what the process keeps for itself is there from now on
  const std::size_t descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  for (int round = 0; round < 4; ++round) {
    const InsideACall again;
  }
  REQUIRE(entries_of("/proc/self/fd") <= descriptors);
  while (entries_of("/proc/self/task") > threads) std::this_thread::yield();
}

TEST_CASE("what refuses to be destroyed can still be aborted") {
  const Door door(has_engine, nullptr, nullptr);
  const InsideACall busy;
  CHECK(ncclCommDestroy(busy.comms[0]) == ncclInvalidUsage);
  CHECK(last_error(busy.comms[0]).find("another thread is inside a call on this communicator") == 0);

  const Door nccls;
  const ncclComm_t comm = one_rank();
  {
    const Failing in_progress("ncclCommDestroy", ncclInvalidArgument);
    CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
  }
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(Door::calls().find("ncclCommAbort(comm") != std::string::npos);
}

TEST_CASE("one rank's call without a place for its result is refused at once, and brings no communicator of NCCL's") {
  const Door door(has_engine);
  ncclComm_t comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  CHECK(ncclCommCount(comms[1], nullptr) == ncclInvalidArgument);
  CHECK(last_error(comms[1]) == "ncclCommCount: count is NULL");
  CHECK(ncclCommUserRank(comms[1], nullptr) == ncclInvalidArgument);
  CHECK(ncclCommCuDevice(comms[1], nullptr) == ncclInvalidArgument);
  CHECK(ncclCommMemStats(comms[1], ncclStatGpuMemTotal, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommRegister(comms[1], at<void>(16), 8, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommWindowDeregister(comms[1], nullptr) == ncclSuccess);
  CHECK(ncclCommDeregister(comms[1], nullptr) == ncclSuccess);
  CHECK(Door::calls().empty());
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("a revoked and a suspended communicator are what they were, and give back what is registered") {
  const Door door(has_engine, "gather");
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    void* handles[2] = {};
    ncclWindow_t windows[2] = {};
    for (int i = 0; i < 2; ++i) {
      NCCL_EXPECT(ncclCommRegister(comm, at<void>(16), 8, &handles[i]));
      NCCL_EXPECT(ncclCommWindowRegister(comm, at<void>(16), 8, &windows[i], 1));
    }
    const auto what_is_left = [&](int i) -> std::string {
      int count = 0, mine = -1;
      NCCL_EXPECT(ncclCommCount(comm, &count));
      NCCL_EXPECT(ncclCommUserRank(comm, &mine));
      PACE_REQUIRE(count == 1);
      PACE_REQUIRE(mine == 0);
      NCCL_EXPECT(ncclCommDeregister(comm, handles[i]));
      NCCL_EXPECT(ncclCommWindowDeregister(comm, windows[i]));
      return "";
    };
    float scalar = 2;
    ncclRedOp_t operators[3] = {};
    for (ncclRedOp_t& op : operators)
      NCCL_EXPECT(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm));
    NCCL_EXPECT(ncclCommSuspend(comm, 1));
    PACE_REQUIRE(what_is_left(0).empty());
    NCCL_EXPECT(ncclRedOpDestroy(operators[0], comm));
    NCCL_EXPECT(ncclCommResume(comm));
    NCCL_EXPECT(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    PACE_REQUIRE(what_is_left(1).empty());
    NCCL_EXPECT(ncclRedOpDestroy(operators[1], comm));
    PACE_REQUIRE(ncclRedOpDestroy(operators[1], comm) == ncclInvalidArgument);
    PACE_REQUIRE(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclInvalidArgument);
    PACE_REQUIRE(ncclCommFinalize(comm) == ncclInvalidArgument);
    PACE_REQUIRE(last_error(comm) == "ncclCommFinalize: the communicator has been revoked");
    return "";
  });
}

TEST_CASE("what fails to make communicators leaves nothing that listens behind") {
  const Door door(has_engine, nullptr, nullptr);
  ncclComm_t comms[3] = {}, made[2] = {};
  REQUIRE(ncclCommInitAll(comms, 3, nullptr) == ncclSuccess);
  CHECK(ncclCommAbort(comms[2]) == ncclSuccess);
  int excluded[] = {1};
  const auto fail_to_shrink = [&] {  // rank 2 does not come
    CHECK(ncclCommShrink(comms[0], excluded, 1, &made[0], nullptr, NCCL_SHRINK_DEFAULT) == ncclRemoteError);
  };
  const auto fail_to_make_all = [&] {
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommInitAll(made, 2, nullptr) == ncclSuccess);
    CHECK(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, nullptr, nullptr) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
  };
  const std::size_t descriptors = entries_of("/proc/self/fd");
  for (int round = 0; round < 4; ++round) {
    fail_to_shrink();
    fail_to_make_all();
  }
  CHECK(entries_of("/proc/self/fd") <= descriptors);
  for (int rank : {0, 1}) CHECK(ncclCommAbort(comms[rank]) == ncclSuccess);
}

TEST_CASE("of several ids those that nobody comes by leave nothing that listens behind") {
  const Door door(has_engine, nullptr, nullptr);
  const auto make = [] {
    ncclUniqueId ids[3]{};
    for (ncclUniqueId& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    on_every_rank(3, [&](int rank) -> std::string {
      ncclComm_t comm = nullptr;
      NCCL_EXPECT(ncclCommInitRankScalable(&comm, 3, rank, 3, ids, nullptr));
      int sum = rank;
      NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
      PACE_REQUIRE(sum == 3);
      NCCL_EXPECT(ncclCommDestroy(comm));
      return "";
    });
  };
  make();  // what the process keeps for itself is there from now on
  const std::size_t descriptors = entries_of("/proc/self/fd");
  for (int round = 0; round < 4; ++round) make();
  CHECK(entries_of("/proc/self/fd") <= descriptors);
}

TEST_CASE("an abort ends a destroy that waits for a call on a stream") {
  Child child([](const Child::Say& say) {
    const Door door(has_engine, nullptr, nullptr);
    ncclComm_t comms[2] = {};
    (void)ncclCommInitAll(comms, 2, nullptr);
    paceHostStream_t stream = nullptr;
    (void)paceHostStreamCreate(&stream);
    int value = 1;
    (void)ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], reinterpret_cast<cudaStream_t>(stream));
    std::thread destroyer([&] { say("destroyed " + std::to_string(ncclCommDestroy(comms[0]))); });
    const bool waits = comes([&] { return nccl::state_of(comms[0]) == nccl::State::destroying; });
    say(waits ? "waits" : "does not wait");
    say("destroyed again " + std::to_string(ncclCommDestroy(comms[0])));
    say("aborted " + std::to_string(ncclCommAbort(comms[0])));
    destroyer.join();
  });
  std::vector<std::string> lines;
  for (int i = 0; i < 4; ++i) lines.push_back(child.line());
  std::sort(lines.begin(), lines.end());  // the abort and the destroy end side by side
  CHECK(lines == std::vector<std::string>{"aborted 0", "destroyed 0", "destroyed again 4", "waits"});
}

TEST_CASE("an abort beside a destroy that is refused is not lost") {
  Child child([](const Child::Say& say) {
    const Door door(has_engine, nullptr, nullptr);
    for (int round = 0; round < 100; ++round) {
      std::thread destroyer;
      {
        const InsideACall busy;  // aborts at its end, which ends the call
        destroyer = std::thread([comm = busy.comms[0]] {
          while (ncclCommDestroy(comm) == ncclInvalidUsage) {
          }
        });
        std::this_thread::sleep_for(1ms);
      }
      destroyer.join();
      say("not lost");
    }
  });
  for (int round = 0; round < 100; ++round) REQUIRE(child.line() == "not lost");
}
