// Communicators that are made of others of Paceline's: split, shrink and grow.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
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

TEST_CASE("a shrink that aborts ends what its parent still runs, on every rank, and the parent can be destroyed") {
  const Door door(has_engine, nullptr, nullptr);
  for (const bool blocking : {true, false})
    on_ranks(3, [&](int rank, ncclComm_t comm) -> std::string {
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
      const ncclResult_t asked = ncclCommShrink(comm, excluded, 1, &made, &config, NCCL_SHRINK_ABORT);
      PACE_REQUIRE(asked == (blocking ? ncclSuccess : ncclInProgress));
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

TEST_CASE("a shrink with flags that there are not, or one that fails, ends no parent") {
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
  ncclComm_t comms[3] = {};
  REQUIRE(ncclCommInitAll(comms, 3, nullptr) == ncclSuccess);
  CHECK(ncclCommAbort(comms[2]) == ncclSuccess);
  on_every_rank(2, [&](int rank) -> std::string {
    int excluded[] = {2};
    ncclComm_t made = nullptr;
    const ncclComm_t comm = comms[rank];
    PACE_REQUIRE(ncclCommShrink(comm, excluded, 1, &made, nullptr, NCCL_SHRINK_ABORT) == ncclRemoteError);
    PACE_REQUIRE(made == nullptr);
    ncclResult_t state = ncclSuccess;
    NCCL_EXPECT(ncclCommGetAsyncError(comm, &state));
    PACE_REQUIRE(state == ncclRemoteError);
    NCCL_EXPECT(ncclCommAbort(comm));
    return "";
  });
}

TEST_CASE("where the first rank of a shrink can make no id the others learn it from it") {
#ifdef __SANITIZE_ADDRESS__
  return;  // UBSAN, which is with it, needs descriptors of its own to look at the objects of virtual calls
#endif
  Child child([](const Child::Say& say) {
    const Door door(has_engine, nullptr, nullptr);
    ncclComm_t comms[3] = {}, made[2] = {};
    (void)ncclCommInitAll(comms, 3, nullptr);
    int excluded[] = {2};
    std::string said[2];
    rlimit before{};
    (void)::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{0, before.rlim_max};
    (void)::setrlimit(RLIMIT_NOFILE, &none);
    const auto shrink = [&](std::size_t rank) {
      const ncclResult_t result = ncclCommShrink(comms[rank], excluded, 1, &made[rank], nullptr, NCCL_SHRINK_DEFAULT);
      said[rank] = std::to_string(result) + " " + last_error(comms[rank]);
    };
    std::thread other(shrink, 1);
    shrink(0);
    other.join();
    (void)::setrlimit(RLIMIT_NOFILE, &before);
    for (const std::string& one : said) say(one);
    for (ncclComm_t comm : comms) (void)ncclCommAbort(comm);
  });
  CHECK(child.line().find("2 cannot make a socket: Too many open files") == 0);
  CHECK(child.line() == "6 ncclCommShrink: rank 0 can make no unique id");
}
