// Groups with calls and communicators of Paceline's.
#include <array>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/ranks.h"
#include "nccl/served_ranks.h"

using namespace paceline;
using namespace paceline::testing;

TEST_CASE("one thread makes all ranks of a communicator and calls for them in groups") {
  const Door door(has_engine, nullptr, nullptr);
  ncclComm_t comms[3] = {};
  REQUIRE(ncclCommInitAll(comms, 3, nullptr) == ncclSuccess);
  std::array<int, 3> values{1, 2, 4};
  std::array<paceHostStream_t, 3> streams{};
  for (paceHostStream_t& stream : streams) REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclInt32, ncclSum, comms[i],
                        reinterpret_cast<cudaStream_t>(streams[i])) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  for (paceHostStream_t stream : streams) {
    CHECK(paceHostStreamSynchronize(stream) == paceSuccess);
    CHECK(paceHostStreamDestroy(stream) == paceSuccess);
  }
  CHECK(values == std::array<int, 3>{7, 7, 7});
  int rank = -1, count = 0;
  CHECK((ncclCommUserRank(comms[2], &rank) == ncclSuccess && rank == 2));
  CHECK((ncclCommCount(comms[2], &count) == ncclSuccess && count == 3));
  std::vector<std::thread> threads;
  for (ncclComm_t comm : comms) threads.emplace_back([comm] { CHECK(ncclCommDestroy(comm) == ncclSuccess); });
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("in a group of one thread's ranks NCCL's communicators are made together, at its end") {
  const Door door(has_engine);
  ncclComm_t comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  ncclWindow_t windows[2] = {};
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int i = 0; i < 2; ++i) CHECK(ncclCommWindowRegister(comms[i], at<void>(16), 4, &windows[i], 1) == ncclSuccess);
  CHECK(Door::calls() == "");
  CHECK(ncclGroupEnd() == ncclSuccess);
  const std::string calls = Door::calls();
  std::string names;
  for (std::size_t at = 0; at < calls.size(); at = calls.find('\n', at) + 1)
    names += calls.substr(at, calls.find('(', at) - at) + " ";
  CHECK(names ==
        "ncclGetUniqueId ncclGroupStart ncclCommInitRankConfig ncclCommInitRankConfig ncclGroupEnd ncclGroupStart "
        "ncclCommWindowRegister ncclCommWindowRegister ncclGroupEnd ");
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("calls of a group for communicators that NCCL has made do not wait for those that it has yet to make") {
  const Door nccls;
  const ncclComm_t other = one_rank(4, 2);
  const Door door(has_engine);
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
  ncclWindow_t window = nullptr;
  int count = 0;
  float scalar = 2;
  ncclRedOp_t op{};
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommWindowRegister(comm, at<void>(16), 4, &window, 1) == ncclSuccess);
  CHECK(ncclCommCount(other, &count) == ncclSuccess);
  CHECK(count == 4);
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, other) == ncclSuccess);
  CHECK(op == 77);
  CHECK(ncclAllReduce(nullptr, nullptr, 1, ncclFloat32, op, other, nullptr) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  const std::string calls = Door::calls();
  CHECK(calls.find("ncclAllReduce(0, 0, 1, 7, 77, comm") < calls.find("ncclGroupEnd()"));
  CHECK(calls.find("ncclGroupEnd()") < calls.find("ncclCommWindowRegister("));
  for (ncclComm_t one : {comm, other}) CHECK(ncclCommAbort(one) == ncclSuccess);
}

TEST_CASE("a group with a rank that cannot be makes none of Paceline's, and waits for nobody") {
  const Door door(has_engine, nullptr, nullptr);
  for (const bool blocking : {true, false}) {
    ncclUniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclConfig_t config = nonblocking();
    config.blocking = blocking ? 1 : 0;
    ncclComm_t one = nullptr, none = nullptr;
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommInitRankConfig(&one, 3, id, 0, &config) == ncclSuccess);
    const ncclComm_t handle = one;
    CHECK(ncclCommInitRank(&none, 3, id, 3) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(last_error() == "ncclCommInitRank: rank 3 of 3 ranks");
    for (ncclComm_t comm : {one, none}) CHECK(comm == nullptr);
    ncclResult_t state = ncclSuccess;
    CHECK(ncclCommGetAsyncError(handle, &state) == ncclSuccess);
    CHECK(state == ncclInvalidArgument);
  }
}

TEST_CASE("where a communicator of a group cannot be made, those that still wait for ranks are given up, as in NCCL") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId ids[2] = {};
  for (ncclUniqueId& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = nonblocking();
  ncclComm_t leaving = nullptr, late = nullptr;
  CHECK(ncclCommInitRankConfig(&leaving, 2, ids[0], 0, &config) == ncclInProgress);
  CHECK(ncclCommAbort(leaving) == ncclSuccess);
  {
    ncclComm_t failing = nullptr, waiting = nullptr, alone = nullptr;
    ncclUniqueId own{};
    REQUIRE(ncclGetUniqueId(&own) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommInitRank(&waiting, 2, ids[1], 0) == ncclSuccess);
    CHECK(ncclCommInitRank(&failing, 2, ids[0], 1) == ncclSuccess);
    CHECK(ncclCommInitRank(&alone, 1, own, 0) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclRemoteError);
    CHECK(last_error().find("rank 0") != std::string::npos);
    for (ncclComm_t comm : {failing, waiting}) CHECK(comm == nullptr);
    CHECK(ncclCommDestroy(alone) == ncclSuccess);
  }
  CHECK(ncclCommInitRank(&late, 2, ids[1], 1) == ncclRemoteError);  // it is told, and writes into no variable any more
}

TEST_CASE("of nonblocking communicators only the group's end says that they are in progress, as in NCCL") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = nonblocking();
  ncclComm_t comms[2] = {};
  const auto wait = [&](ncclComm_t comm) {
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
      REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  };
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config) == ncclSuccess);
  CHECK(ncclCommInitRankScalable(&comms[1], 2, 1, 1, &id, &config) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInProgress);
  for (ncclComm_t comm : comms) wait(comm);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (ncclComm_t comm : comms) CHECK(ncclCommFinalize(comm) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInProgress);
  for (ncclComm_t comm : comms) {
    wait(comm);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
}

TEST_CASE("a group that would make blocking and nonblocking communicators makes none, as in NCCL") {
  Child child([](const Child::Say& say) {
    const Door door(has_engine, nullptr, nullptr);
    for (const bool blocking_first : {true, false}) {
      ncclUniqueId id{};
      (void)ncclGetUniqueId(&id);
      ncclConfig_t config = nonblocking();
      ncclComm_t comms[2] = {};
      (void)ncclGroupStart();
      for (int rank = 0; rank < 2; ++rank)
        say(std::to_string((rank == 0) == blocking_first ? ncclCommInitRank(&comms[rank], 2, id, rank)
                                                         : ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config)));
      say(std::to_string(ncclGroupEnd()));
      say(last_error());
      say(comms[0] == nullptr && comms[1] == nullptr ? "none" : "some");
    }
  });
  for (int round = 0; round < 2; ++round) {
    CHECK(child.line() == "0");
    CHECK(child.line() == "4");
    CHECK(child.line() == "4");
    CHECK(child.line() == "one group makes blocking or nonblocking communicators, not both");
    CHECK(child.line() == "none");
  }
}

TEST_CASE("a group with a split that is refused splits none") {
  const Door door(has_engine, nullptr, nullptr);
  ncclComm_t comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  ncclComm_t child = nullptr;
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommSplit(comms[0], 0, 0, &child, nullptr) == ncclSuccess);
  CHECK(ncclCommSplit(comms[1], 0, 0, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(child == nullptr);
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("a group with a call that was refused runs none of Paceline's") {
  const Door door(has_engine, nullptr, nullptr);
  ncclComm_t comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  paceHostStream_t stream = nullptr;
  REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
  REQUIRE(ncclCommFinalize(comms[1]) == ncclSuccess);
  int value = 1;
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], reinterpret_cast<cudaStream_t>(stream)) ==
        ncclSuccess);
  CHECK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[1], nullptr) == ncclInvalidUsage);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(paceHostStreamSynchronize(stream) == paceSuccess);
  CHECK(paceHostStreamDestroy(stream) == paceSuccess);
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("in a group of aborts every communicator is told at once, NCCL's in a group of its own") {
  const Door door(has_engine, "gather");
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::barrier both_have_both(2);  // an abort ends the other rank's split, too
  on_every_rank(2, [&](int rank) -> std::string {
    ncclComm_t comm = nullptr, other = nullptr;
    NCCL_EXPECT(ncclCommInitRank(&comm, 2, id, rank));
    NCCL_EXPECT(ncclCommSplit(comm, 0, rank, &other, nullptr));
    both_have_both.arrive_and_wait();
    std::thread waiting;
    if (rank == 0)
      waiting = std::thread([&] {
        int value = 1;
        (void)ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, other, nullptr);
      });
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclCommAbort(comm));
    NCCL_EXPECT(ncclCommAbort(other));
    if (waiting.joinable()) waiting.join();
    NCCL_EXPECT(ncclGroupEnd());
    PACE_REQUIRE(ncclCommAbort(comm) == ncclInvalidArgument);
    return "";
  });
  const std::string calls = Door::calls();
  CHECK(calls.find("ncclGroupStart()") < calls.find("ncclCommAbort(comm"));
  CHECK(calls.rfind("ncclCommAbort(comm") < calls.rfind("ncclGroupEnd()"));
}

TEST_CASE("a group with Paceline's calls has no estimate of NCCL's, and runs nothing") {
  const Door door(has_engine);
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    int in = 1, out = 0;
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm, nullptr));
    ncclSimInfo_t info{};
    PACE_REQUIRE(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
    PACE_REQUIRE(out == 0);
    NCCL_EXPECT(ncclAllReduce(&in, &out, 1, ncclInt32, ncclSum, comm, nullptr));
    PACE_REQUIRE(out == 1);
    return "";
  });
}

TEST_CASE("a group may hold calls beside the making of one communicator") {
  const Door door(has_engine, "gather");
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  on_ranks(2, [&](int rank, ncclComm_t comm) -> std::string {
    for (const bool from_parent : {true, false}) {
      ncclComm_t made = nullptr;
      int sum = rank + 1, gathered[2] = {};
      NCCL_EXPECT(ncclGroupStart());
      NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
      NCCL_EXPECT(ncclGather(&sum, gathered, 1, ncclInt32, 0, comm, nullptr));
      NCCL_EXPECT(from_parent ? ncclCommSplit(comm, 0, -rank, &made, nullptr) : ncclCommInitRank(&made, 2, id, rank));
      NCCL_EXPECT(ncclGroupEnd());
      PACE_REQUIRE(sum == 3);
      int mine = -1;
      NCCL_EXPECT(ncclCommUserRank(made, &mine));
      PACE_REQUIRE(mine == (from_parent ? 1 - rank : rank));
      NCCL_EXPECT(ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, made, nullptr));
      PACE_REQUIRE(sum == 1);
      NCCL_EXPECT(ncclCommDestroy(made));
    }
    return "";
  });
}

TEST_CASE("where NCCL cannot simulate a group its group ends all the same") {
  nccl::Real old = fake();
  old.ncclGroupSimulateEnd = nullptr;
  const Door door(nullptr, nullptr, &old);
  const ncclComm_t comm = one_rank();
  ncclSimInfo_t info{};
  int value = 0;
  (void)Door::calls();
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr) == ncclSuccess);
  CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
  CHECK(last_error().find("ncclGroupSimulateEnd: NCCL 2.30.7 (") == 0);
  CHECK(Door::calls().find("ncclGroupEnd()") != std::string::npos);
}

TEST_CASE("a communicator's last error is its group's where that came later") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    int value = 1;
    PACE_REQUIRE(ncclBroadcast(&value, &value, 1, ncclInt32, 7, comm, nullptr) == ncclInvalidArgument);
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclSend(&value, 1, ncclInt32, 0, comm, nullptr));
    PACE_REQUIRE(ncclGroupEnd() == ncclInvalidUsage);
    const std::string of_group =
        "rank 0 sends and receives different messages to itself: each needs a group "
        "with its send and its receive";
    PACE_REQUIRE(last_error(comm) == of_group);
    PACE_REQUIRE(last_error() == of_group);
    PACE_REQUIRE(ncclBroadcast(&value, &value, 1, ncclInt32, 7, comm, nullptr) == ncclInvalidArgument);
    PACE_REQUIRE(last_error(comm) == "broadcast: root 7 is not among the ranks 0..0");
    return "";
  });
}

TEST_CASE("a communicator's last error is no other communicator's") {
  const Door door(has_engine, nullptr, nullptr);
  ncclComm_t comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  CHECK(ncclCommCount(comms[0], nullptr) == ncclInvalidArgument);
  CHECK(ncclCommUserRank(comms[1], nullptr) == ncclInvalidArgument);
  CHECK(last_error(comms[0]) == "ncclCommCount: count is NULL");
  CHECK(last_error() == "ncclCommUserRank: rank is NULL");
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("a communicator's last error is no other thread's, and its group's whoever asks") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    const auto elsewhere = [](auto&& act) { std::thread(act).join(); };
    PACE_REQUIRE(ncclCommCount(comm, nullptr) == ncclInvalidArgument);
    ncclResult_t theirs = ncclSuccess;
    elsewhere([&] { theirs = ncclGroupEnd(); });
    PACE_REQUIRE(theirs == ncclInvalidUsage);
    PACE_REQUIRE(last_error() == "ncclGroupEnd without ncclGroupStart");
    PACE_REQUIRE(last_error(comm) == "ncclCommCount: count is NULL");
    int value = 1;
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclSend(&value, 1, ncclInt32, 0, comm, nullptr));
    PACE_REQUIRE(ncclGroupEnd() == ncclInvalidUsage);
    std::string seen;
    elsewhere([&] { seen = last_error(comm); });
    PACE_REQUIRE(seen.starts_with("rank 0 sends and receives different messages to itself"));
    return "";
  });
}

TEST_CASE("an error of NCCL's part of a group is that of all its communicators, whoever asks") {
  using Two = std::array<ncclComm_t, 2>;
  const auto errors_after = [](const Two& comms, auto call) {
    for (ncclComm_t comm : comms) CHECK(ncclCommGetAsyncError(comm, nullptr) == ncclInvalidArgument);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (ncclComm_t comm : comms) CHECK(call(comm) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSystemError);
    std::vector<std::string> told;
    std::thread([&] {
      for (ncclComm_t comm : comms) told.push_back(last_error(comm));
    }).join();
    return told;
  };
  const std::vector<std::string> nccls(2, "the fake's last error");
  {
    const Door door;
    const Two comms{one_rank(), one_rank()};
    const Failing failing("ncclGroupEnd", ncclSystemError);
    CHECK(errors_after(comms, [](ncclComm_t comm) { return ncclSend(nullptr, 1, ncclInt8, 0, comm, nullptr); }) ==
          nccls);
  }
  const Door door(has_engine);
  Two comms{};
  REQUIRE(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
  for (const char* where : {"ncclCommInitRankConfig", "ncclCommWindowRegister", "ncclGroupEnd"}) {
    const Failing failing(where, ncclSystemError);
    ncclWindow_t window = nullptr;
    CHECK(errors_after(comms, [&](ncclComm_t comm) {
            return ncclCommWindowRegister(comm, at<void>(16), 4, &window, 1);
          }) == nccls);
  }
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("a group that runs while a thread's variables are destroyed writes into none of them") {
  const Door door(has_engine, nullptr, nullptr);
  static ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
  static int value = 5;
  static std::string seen;
  static bool untouched = false;
  struct Late {
    static bool act() {
      const bool grouped = ncclGroupStart() == ncclSuccess &&
                           ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr) == ncclSuccess &&
                           ncclGroupEnd() == ncclSuccess;
      return grouped && ncclGroupEnd() == ncclInvalidUsage;
    }
    ~Late() {
      // These lie where the variables had their memory.
      std::vector<std::string> others;
      for (const std::size_t size : {16, 24, 34, 40, 60, 68, 80, 16, 24, 34, 40, 60, 68, 80})
        others.emplace_back(size, 'x');
      std::array<std::unique_ptr<void*>, 8> pointers;
      for (std::unique_ptr<void*>& pointer : pointers) pointer = std::make_unique<void*>(nullptr);
      const bool acted = act();
      seen = acted ? last_error() : "an act failed";
      untouched = true;
      for (const std::string& other : others) untouched &= other == std::string(other.size(), 'x');
      for (const std::unique_ptr<void*>& pointer : pointers) untouched &= *pointer == nullptr;
    }
  };
  std::thread([] {
    thread_local Late first;  // ends last
    (void)first;
    CHECK(Late::act());
    CHECK(last_error() == "ncclGroupEnd without ncclGroupStart");
  }).join();
  CHECK(seen == "ncclGroupEnd without ncclGroupStart");
  CHECK(untouched);
  CHECK(value == 5);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
}
