// Communicators that are made of others of Paceline's: split, shrink and grow.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/ranks.h"
#include "nccl/served_ranks.h"

using namespace paceline;
using namespace paceline::testing;

TEST_CASE("split, shrink and grow of Paceline's communicators") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId growth{};
  std::atomic<bool> told{false};
  on_ranks(3, [&](int rank, ncclComm_t comm) -> std::string {
    ncclComm_t made = nullptr;
    int count = 0, mine = -1;
    NCCL_EXPECT(ncclCommSplit(comm, rank == 2 ? NCCL_SPLIT_NOCOLOR : 0, -rank, &made, nullptr));
    PACE_REQUIRE((made == nullptr) == (rank == 2));
    if (made != nullptr) {
      NCCL_EXPECT(ncclCommCount(made, &count));
      NCCL_EXPECT(ncclCommUserRank(made, &mine));
      PACE_REQUIRE(count == 2);
      PACE_REQUIRE(mine == 1 - rank);
      NCCL_EXPECT(ncclCommDestroy(made));
    }
    int excluded[] = {0};
    if (rank != 0) {
      NCCL_EXPECT(ncclCommShrink(comm, excluded, 1, &made, nullptr, NCCL_SHRINK_DEFAULT));
      int sum = rank;
      NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, made, nullptr));
      PACE_REQUIRE(sum == 3);
      NCCL_EXPECT(ncclCommDestroy(made));
    }
    if (rank == 0) {
      NCCL_EXPECT(ncclCommGetUniqueId(comm, &growth));
      told = true;
      told.notify_all();
    }
    std::thread newcomer;
    std::string complaint;
    if (rank == 1)
      newcomer = std::thread([&] {
        told.wait(false);
        ncclComm_t joined = nullptr;
        int one = 10;
        if (ncclCommGrow(nullptr, 4, &growth, 3, &joined, nullptr) != ncclSuccess ||
            ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum, joined, nullptr) != ncclSuccess || one != 13)
          complaint = "the newcomer: " + last_error();
        (void)ncclCommDestroy(joined);
      });
    ncclComm_t grown = nullptr;
    const ncclResult_t result = ncclCommGrow(comm, 4, rank == 0 ? &growth : nullptr, -1, &grown, nullptr);
    int one = 1;
    if (result == ncclSuccess) NCCL_EXPECT(ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum, grown, nullptr));
    if (newcomer.joinable()) newcomer.join();
    NCCL_EXPECT(result);
    PACE_REQUIRE(one == 13);
    NCCL_EXPECT(ncclCommDestroy(grown));
    return complaint;
  });
}

TEST_CASE("only new ranks need give the id of a growth, which is good for one") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId growth{};
  std::atomic<bool> told{false};
  on_ranks(2, [&](int rank, ncclComm_t comm) -> std::string {
    ncclComm_t newcomer = nullptr, grown = nullptr, none = nullptr;
    if (rank == 1) {
      NCCL_EXPECT(ncclCommGetUniqueId(comm, &growth));
      told = true;
      told.notify_all();
    } else {
      told.wait(false);
      ncclConfig_t config = nonblocking();
      NCCL_EXPECT(ncclCommGrow(nullptr, 3, &growth, 2, &newcomer, &config));
    }
    const ncclResult_t result = ncclCommGrow(comm, 3, nullptr, -1, &grown, nullptr);
    if (result != ncclSuccess) (void)ncclCommAbort(newcomer);
    NCCL_EXPECT(result);
    for (ncclResult_t state = ncclInProgress; newcomer != nullptr && state == ncclInProgress;)
      NCCL_EXPECT(ncclCommGetAsyncError(newcomer, &state));
    int mine = 1, theirs = 10;
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclAllReduce(&mine, &mine, 1, ncclInt32, ncclSum, grown, nullptr));
    if (rank == 0) NCCL_EXPECT(ncclAllReduce(&theirs, &theirs, 1, ncclInt32, ncclSum, newcomer, nullptr));
    NCCL_EXPECT(ncclGroupEnd());
    PACE_REQUIRE(mine == 12);
    PACE_REQUIRE(ncclCommGrow(comm, 3, nullptr, -1, &none, nullptr) == ncclInvalidArgument);
    PACE_REQUIRE(last_error(comm) == "ncclCommGrow: no rank has called ncclCommGetUniqueId, or given its id");
    for (ncclComm_t made : {grown, newcomer}) NCCL_EXPECT(ncclCommAbort(made));
    return "";
  });
}

TEST_CASE("a split and a shrink of a blocking communicator block, whatever the configuration of the new one says") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(3, [](int rank, ncclComm_t comm) -> std::string {
    ncclConfig_t config = nonblocking();
    int excluded[] = {2};
    for (const bool by_split : {true, false}) {
      if (!by_split && rank == 2) break;
      ncclComm_t made = nullptr;
      NCCL_EXPECT(by_split ? ncclCommSplit(comm, 0, rank, &made, &config)
                           : ncclCommShrink(comm, excluded, 1, &made, &config, NCCL_SHRINK_DEFAULT));
      PACE_REQUIRE(nccl::state_of(made) == nccl::State::ready);
      PACE_REQUIRE(nccl::state_of(comm) == nccl::State::ready);
      int sum = 1;
      NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, made, nullptr));
      PACE_REQUIRE(sum == (by_split ? 3 : 2));
      NCCL_EXPECT(ncclCommDestroy(made));
    }
    return "";
  });
}

TEST_CASE("a split and a shrink of a nonblocking communicator block nobody, whatever the configuration says") {
  const Door door(has_engine, nullptr, nullptr);
  const std::vector<ncclComm_t> comms = nonblocking_ranks(3);
  ncclConfig_t config = nonblocking();
  config.blocking = NCCL_CONFIG_UNDEF_INT;
  int excluded[] = {2};
  for (const bool by_split : {true, false}) {
    std::vector<ncclComm_t> made(by_split ? 3 : 2);
    for (std::size_t rank = 0; rank < made.size(); ++rank) {
      CHECK((by_split
                 ? ncclCommSplit(comms[rank], 0, 0, &made[rank], &config)
                 : ncclCommShrink(comms[rank], excluded, 1, &made[rank], &config, NCCL_SHRINK_DEFAULT)) == ncclSuccess);
      ncclResult_t state = ncclSuccess;
      CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
      if (rank == 0) CHECK(state == ncclInProgress);
    }
    for (const std::vector<ncclComm_t>& all : {comms, made})
      for (ncclComm_t comm : all)
        for (ncclResult_t state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
          REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    // The new ones block, as they say nothing else.
    for (ncclComm_t comm : made) CHECK(ncclCommFinalize(comm) == ncclSuccess);
    for (ncclComm_t comm : made) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("a shrink that aborts ends what its parent still runs, on every rank, and the parent can be destroyed") {
  const Door door(has_engine, nullptr, nullptr);
  for (const bool blocking : {true, false})
    on_ranks(3, blocking, [&](int rank, ncclComm_t comm) -> std::string {
      int value = 1;
      if (rank == 0) {
        NCCL_EXPECT(ncclGroupStart());
        NCCL_EXPECT(ncclSend(&value, 1, ncclInt32, 1, comm, nullptr));
        NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
        PACE_REQUIRE(ncclGroupEnd() == ncclRemoteError);
        return "";
      }
      if (rank == 1) NCCL_EXPECT(ncclRecv(&value, 1, ncclInt32, 0, comm, nullptr));  // rank 0 is in its calls
      ncclConfig_t config = nonblocking();
      config.blocking = blocking ? 1 : 0;
      int excluded[] = {0};
      ncclComm_t made = nullptr;
      NCCL_EXPECT(ncclCommShrink(comm, excluded, 1, &made, &config, NCCL_SHRINK_ABORT));
      ncclResult_t state = ncclInProgress;
      for (; state == ncclInProgress; std::this_thread::yield()) NCCL_EXPECT(ncclCommGetAsyncError(comm, &state));
      NCCL_EXPECT(state);
      PACE_REQUIRE(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr) == ncclInvalidUsage);
      PACE_REQUIRE(last_error(comm) == "ncclAllReduce: the communicator has been revoked");
      int sum = rank;
      NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, made, nullptr));
      PACE_REQUIRE(sum == 3);
      NCCL_EXPECT(ncclCommDestroy(made));
      return "";
    });
}

TEST_CASE("a shrink with flags that there are not ends no parent") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(2, [&](int rank, ncclComm_t comm) -> std::string {
    int excluded[] = {1 - rank};
    int sum = 1;
    ncclComm_t made = nullptr;
    PACE_REQUIRE(ncclCommShrink(comm, excluded, 1, &made, nullptr, 2) == ncclInvalidArgument);
    PACE_REQUIRE(last_error(comm) == "ncclCommShrink: there are no flags 2");
    PACE_REQUIRE(made == nullptr);
    NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    PACE_REQUIRE(sum == 2);
    return "";
  });
}

// Communicators of all of `ranks` ranks, of which the last one has aborted its own.
std::vector<ncclComm_t> left_by_last(int ranks, bool blocking = true) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  if (blocking)
    REQUIRE(ncclCommInitAll(comms.data(), ranks, nullptr) == ncclSuccess);
  else
    comms = nonblocking_ranks(ranks);
  CHECK(ncclCommAbort(comms.back()) == ncclSuccess);
  return comms;
}

TEST_CASE("a shrink without a rank that has aborted, of either kind, and another one of the same parent") {
  const Door door(has_engine, nullptr, nullptr);
  for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT})
    for (const bool blocking : {true, false}) {
      const auto comms = left_by_last(3, blocking);
      on_every_rank(2, [&](int rank) -> std::string {
        const ncclComm_t comm = comms[static_cast<std::size_t>(rank)];
        ncclConfig_t config = nonblocking();
        config.blocking = blocking ? 1 : 0;
        int excluded[] = {2};
        for (int round = 0; round < 2; ++round) {
          ncclComm_t made = nullptr;
          NCCL_EXPECT(ncclCommShrink(comm, excluded, 1, &made, &config, flags));
          for (ncclResult_t state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
            NCCL_EXPECT(ncclCommGetAsyncError(made, &state));
          int sum = rank + 1;
          NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, made, nullptr));
          PACE_REQUIRE(sum == 3);
          NCCL_EXPECT(ncclCommDestroy(made));
        }
        NCCL_EXPECT(ncclCommDestroy(comm));
        return "";
      });
    }
}

TEST_CASE("a revoked communicator can be shrunk and split, but takes no calls") {
  const Door door(has_engine, nullptr, nullptr);
  for (const bool blocking : {true, false})
    on_ranks(4, blocking, [&](int rank, ncclComm_t comm) -> std::string {
      ncclConfig_t config = nonblocking();
      config.blocking = blocking ? 1 : 0;
      NCCL_EXPECT(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
      const auto finish = [&](ncclResult_t asked, ncclComm_t made, int mine, int wanted) -> std::string {
        NCCL_EXPECT(asked);
        ncclResult_t state = ncclInProgress;
        for (; state == ncclInProgress; std::this_thread::yield()) NCCL_EXPECT(ncclCommGetAsyncError(comm, &state));
        NCCL_EXPECT(state);
        if (made == nullptr) return wanted == 0 ? "" : "no communicator";
        int number = -1;
        NCCL_EXPECT(ncclCommUserRank(made, &number));
        PACE_REQUIRE(number == mine);
        int sum = rank;
        NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, made, nullptr));
        PACE_REQUIRE(sum == wanted);
        return ncclCommDestroy(made) == ncclSuccess ? "" : last_error();
      };
      ncclComm_t made = nullptr;
      ncclResult_t asked = ncclCommSplit(comm, rank == 1 ? NCCL_SPLIT_NOCOLOR : 0, -rank, &made, &config);
      const int number[] = {2, -1, 1, 0};
      if (auto complaint = finish(asked, made, number[rank], rank == 1 ? 0 : 5); !complaint.empty()) return complaint;
      made = nullptr;
      int excluded[] = {0};
      if (rank != 0) asked = ncclCommShrink(comm, excluded, 1, &made, &config, NCCL_SHRINK_DEFAULT);
      if (auto complaint = rank == 0 ? "" : finish(asked, made, rank - 1, 6); !complaint.empty()) return complaint;
      int value = 1;
      PACE_REQUIRE(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr) == ncclInvalidUsage);
      return "";
    });
}

TEST_CASE("a shrink to one rank, and one that fails: a rank that would stay has ended its communicator") {
  const Door door(has_engine, nullptr, nullptr);
  for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT}) {
    const auto comms = left_by_last(2);
    const ncclComm_t comm = comms[0];
    ncclComm_t made = nullptr;
    int excluded[] = {1};
    CHECK(ncclCommShrink(comm, excluded, 1, &made, nullptr, flags) == ncclSuccess);  // to one rank
    CHECK(ncclCommDestroy(made) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
  for (const int flags : {NCCL_SHRINK_DEFAULT, NCCL_SHRINK_ABORT}) {
    const auto comms = left_by_last(3);
    int excluded[] = {1};
    ncclComm_t made = nullptr;
    CHECK(ncclCommShrink(comms[0], excluded, 1, &made, nullptr, flags) == ncclRemoteError);
    CHECK(made == nullptr);
    CHECK(last_error(comms[0]).starts_with("going on with ranks 0, 2, from now on numbered from 0: rank 1 ("));
    int value = 1;
    CHECK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], nullptr) == ncclRemoteError);
    for (const int rank : {0, 1}) CHECK(ncclCommAbort(comms[static_cast<std::size_t>(rank)]) == ncclSuccess);
  }
}

// Whether the communicator's making fails while a test may wait for it.
bool fails(ncclComm_t made) {
  ncclResult_t state = ncclInProgress;
  CHECK(comes([&] {
    CHECK(ncclCommGetAsyncError(made, &state) == ncclSuccess);
    return state != ncclInProgress;
  }));
  return state == ncclRemoteError;
}

TEST_CASE("an abort of the parent ends the making of a shrunk communicator that the others do not come to") {
  const Door door(has_engine, nullptr, nullptr);
  // Who waits where they meet, who looks for the other there, and both, where a third does not come.
  for (const std::vector<std::size_t>& there : {std::vector<std::size_t>{0}, {1}, {0, 1}, {1, 0}}) {
    const std::vector<ncclComm_t> comms = nonblocking_ranks(4);
    ncclComm_t made[2] = {};
    ncclConfig_t config = nonblocking();
    int excluded[] = {3};
    for (const std::size_t rank : there)
      CHECK(ncclCommShrink(comms[rank], excluded, 1, &made[rank], &config, NCCL_SHRINK_DEFAULT) == ncclSuccess);
    std::this_thread::sleep_for(100ms);  // until they have met, as a rule
    CHECK(ncclCommAbort(comms[there[0]]) == ncclSuccess);
    for (const std::size_t rank : there) CHECK(fails(made[rank]));
    for (const std::size_t rank : there) CHECK(ncclCommAbort(made[rank]) == ncclSuccess);
    for (std::size_t rank = 0; rank < 4; ++rank)
      if (rank != there[0]) CHECK(ncclCommAbort(comms[rank]) == ncclSuccess);
  }
}

TEST_CASE("a parent whose child is still being made is not destroyed, also where it has been revoked") {
  const Door door(has_engine, nullptr, nullptr);
  const std::vector<ncclComm_t> comms = nonblocking_ranks(2);
  ncclComm_t made = nullptr;
  ncclConfig_t config = nonblocking();
  CHECK(ncclCommRevoke(comms[0], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  CHECK(ncclCommSplit(comms[0], 0, 0, &made, &config) == ncclSuccess);
  CHECK(ncclCommDestroy(comms[0]) == ncclInvalidArgument);
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  CHECK(fails(made));
  for (ncclComm_t comm : {made, comms[1]}) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("a shrink in a group that is not run ends no parent, whatever its flag says") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(2, [&](int rank, ncclComm_t comm) -> std::string {
    int excluded[] = {1 - rank};
    int sum = 1;
    ncclComm_t made = nullptr;
    NCCL_EXPECT(ncclGroupStart());
    (void)ncclCommShrink(comm, excluded, 1, &made, nullptr, NCCL_SHRINK_ABORT);
    PACE_REQUIRE(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, nullptr, nullptr) == ncclInvalidArgument);
    PACE_REQUIRE(ncclGroupEnd() == ncclInvalidArgument);
    PACE_REQUIRE(made == nullptr);
    NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    PACE_REQUIRE(sum == 2);
    return "";
  });
}

TEST_CASE("without a descriptor a shrink is the rank's own error") {
#ifdef __SANITIZE_ADDRESS__
  return;  // UBSAN, which is with it, needs descriptors of its own to look at the objects of virtual calls
#endif
  Child child([](const Child::Say& say) {
    const Door door(has_engine, nullptr, nullptr);
    ncclComm_t comms[3] = {}, made = nullptr;
    (void)ncclCommInitAll(comms, 3, nullptr);
    int excluded[] = {2};
    rlimit before{};
    (void)::getrlimit(RLIMIT_NOFILE, &before);
    for (const std::size_t rank : {0, 1}) {
      const rlimit none{1, before.rlim_max};
      (void)::setrlimit(RLIMIT_NOFILE, &none);
      const ncclResult_t result = ncclCommShrink(comms[rank], excluded, 1, &made, nullptr, NCCL_SHRINK_DEFAULT);
      (void)::setrlimit(RLIMIT_NOFILE, &before);
      say(std::to_string(result) + " " + last_error(comms[rank]));
    }
    for (ncclComm_t comm : comms) (void)ncclCommAbort(comm);
  });
  for (const char* rank : {"0", "1"}) {
    const std::string line = child.line();
    CHECK(line.starts_with("2 going on with ranks 0, 1, from now on numbered from 0: "));
    INFO(line);
    CHECK(line.find(std::string("rank ") + rank + " (") != std::string::npos);
    CHECK(line.find("Too many open files") != std::string::npos);
  }
}

TEST_CASE("the parent of a nonblocking child that cannot be made says so, until another one is, as in NCCL") {
  const Door door(has_engine, "gather");
  const std::vector<ncclComm_t> comms = nonblocking_ranks(2);
  const auto split = [&] {
    std::vector<ncclResult_t> states;
    ncclComm_t children[2] = {};
    for (std::size_t i = 0; i < 2; ++i) CHECK(ncclCommSplit(comms[i], 0, 0, &children[i], nullptr) == ncclSuccess);
    for (ncclComm_t one : {comms[0], comms[1], children[0], children[1]}) {
      ncclResult_t state = ncclInProgress;
      CHECK(comes([&] { return ncclCommGetAsyncError(one, &state) == ncclSuccess && state != ncclInProgress; }));
      states.push_back(state);
    }
    for (ncclComm_t child : children) CHECK(ncclCommAbort(child) == ncclSuccess);
    return states;
  };
  {
    const Failing failing("ncclCommInitRankConfig", ncclSystemError);
    const std::vector<ncclResult_t> states = split();
    CHECK(std::count(states.begin(), states.end(), ncclSystemError) >= 2);  // of who fails first, and of its parent
    for (const ncclResult_t state : states) CHECK((state == ncclSystemError || state == ncclRemoteError));
    for (std::size_t i = 0; i < 2; ++i) CHECK(states[i] == states[i + 2]);
  }
  CHECK(split() == std::vector<ncclResult_t>(4, ncclSuccess));
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("why a child could not be made is its parent's last error, whatever failed before") {
  const Door door(has_engine, "gather");
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    PACE_REQUIRE(ncclRedOpDestroy(static_cast<ncclRedOp_t>(77), comm) == ncclInvalidArgument);
    nccl::replace_real(nullptr, "it is gone");
    ncclComm_t child = nullptr;
    PACE_REQUIRE(ncclCommSplit(comm, 0, 0, &child, nullptr) == ncclInvalidUsage);
    PACE_REQUIRE(last_error(comm).find("the making of the communicator needs NCCL itself") == 0);
    nccl::replace_real(&fake(), {});
    return "";
  });
}

TEST_CASE("who revokes a communicator beside another thread's call can go on at once") {
  const Door door(has_engine);
  for (int round = 0; round < 16; ++round) {
    ncclUniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    on_every_rank(2, [&](int rank) -> std::string {
      ncclComm_t comm = nullptr, child = nullptr;
      NCCL_EXPECT(ncclCommInitRank(&comm, 2, id, rank));
      ncclResult_t called = ncclRemoteError;
      int one = 1, sum = 0;
      std::thread caller;
      if (rank == 0)
        caller = std::thread([&] { called = ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, nullptr); });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const ncclResult_t revoked = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
      ncclResult_t made = ncclSuccess;
      if (round % 2 == 0) made = ncclCommSplit(comm, 0, rank, &child, nullptr);
      const ncclResult_t ended = ncclCommDestroy(comm);
      if (caller.joinable()) caller.join();
      NCCL_EXPECT(revoked);
      NCCL_EXPECT(made);
      NCCL_EXPECT(ended);
      PACE_REQUIRE(called == ncclRemoteError);
      NCCL_EXPECT(ncclCommDestroy(child));
      return "";
    });
  }
}
