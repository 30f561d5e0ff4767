// Communicators that NCCL makes: what it is asked for, and when ours are ready. Those that Paceline makes behind the
// program's back, and their end meanwhile.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "nccl/served_ranks.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

ncclConfig_t undefined(std::size_t size, unsigned int version) {
  ncclConfig_t config{};
  config.size = size;
  config.magic = NCCL_API_MAGIC;
  config.version = version;
  for (int ncclConfig_t::*field :
       {&ncclConfig_t::blocking, &ncclConfig_t::cgaClusterSize, &ncclConfig_t::minCTAs, &ncclConfig_t::maxCTAs,
        &ncclConfig_t::splitShare, &ncclConfig_t::trafficClass, &ncclConfig_t::collnetEnable, &ncclConfig_t::CTAPolicy,
        &ncclConfig_t::shrinkShare, &ncclConfig_t::nvlsCTAs, &ncclConfig_t::nChannelsPerNetPeer})
    config.*field = NCCL_CONFIG_UNDEF_INT;
  return config;
}

ncclUniqueId unique_id() {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  (void)Door::calls();
  return id;
}

std::string id_text(const ncclUniqueId& id) { return "id" + std::to_string(static_cast<int>(id.internal[0])); }

}  // namespace

TEST_CASE("without an engine the unique id is NCCL's own, and so is the communicator") {
  const Door door;
  const ncclUniqueId id = unique_id();
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 8, id, 3) == ncclSuccess);
  const std::string calls = Door::calls();
  CHECK(calls.find("ncclCommInitRank(") == 0);
  CHECK(calls.find(", 8, " + id_text(id) + ", 3)\n") != std::string::npos);
  ncclResult_t state = ncclInternalError;
  CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  CHECK(state == ncclSuccess);
}

TEST_CASE("a configuration of every size and version arrives as it is") {
  const Door door;
  const struct {
    std::size_t size;
    unsigned int version;
    const char* seen;
  } versions[] = {
      {offsetof(ncclConfig_t, graphUsageMode), 22809, "minCTAs=7,net=Socket,nvlink=11}"},
      {offsetof(ncclConfig_t, maxP2pPeers), 22907, "minCTAs=7,net=Socket,nvlink=11,rma=12}"},
      {sizeof(ncclConfig_t), 23007, "minCTAs=7,net=Socket,nvlink=11,rma=12,order=13}"},
      {sizeof(ncclConfig_t) + 64, 23105, "minCTAs=7,net=Socket,nvlink=11,rma=12,order=13}"},
  };
  for (const auto& one : versions) {
    std::vector<std::byte> memory(one.size + sizeof(ncclConfig_t));
    ncclConfig_t config = undefined(one.size, one.version);
    config.minCTAs = 7;
    config.netName = "Socket";
    config.nvlinkCentricSched = 11;
    config.numRmaCtx = 12;
    config.graphStreamOrdering = 13;
    std::memcpy(memory.data(), &config, sizeof config);
    ncclComm_t comm = nullptr;
    const ncclUniqueId id = unique_id();
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 1, reinterpret_cast<ncclConfig_t*>(memory.data())) == ncclSuccess);
    CHECK(Door::calls().find("config{" + std::to_string(one.size) + "," + std::to_string(one.version) +
                             ",blocking=-2147483648," + one.seen) != std::string::npos);
  }
}

TEST_CASE("many ids at once arrive with rank and size") {
  const Door door;
  ncclUniqueId ids[2] = {unique_id(), unique_id()};
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankScalable(&comm, 4, 2, 2, ids, nullptr) == ncclSuccess);
  CHECK(Door::calls().find(", 4, 2, 2, " + std::to_string(reinterpret_cast<std::uintptr_t>(ids)) + ", null)\n") !=
        std::string::npos);
}

TEST_CASE("a nonblocking communicator is in progress until NCCL says otherwise") {
  const Door door;
  ncclConfig_t config = undefined(sizeof(ncclConfig_t), 23007);
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, 2, unique_id(), 0, &config) == ncclInProgress);
  REQUIRE(comm != nullptr);
  std::vector<ncclResult_t> seen(3);
  for (ncclResult_t& state : seen) CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  CHECK(seen == std::vector<ncclResult_t>{ncclInProgress, ncclInProgress, ncclSuccess});
}

TEST_CASE("one thread makes all ranks in a group, and has them at its end") {
  const Door door;
  const ncclUniqueId id = unique_id();
  std::vector<ncclComm_t> comms(3);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 3; ++rank)
    CHECK(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 3, id, rank) == ncclSuccess);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  CHECK(state == ncclInProgress);
  CHECK(ncclGroupEnd() == ncclSuccess);
  for (int rank = 0; rank < 3; ++rank) {
    int mine = -1;
    CHECK(ncclCommUserRank(comms[static_cast<std::size_t>(rank)], &mine) == ncclSuccess);
    CHECK(mine == rank);
  }
}

TEST_CASE("a group with a rank that cannot be makes none") {
  const Door door;
  const ncclUniqueId id = unique_id();
  ncclComm_t comm = nullptr, none = nullptr;
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclSuccess);
  const ncclComm_t handle = comm;
  CHECK(ncclCommInitRank(&none, 2, id, 2) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(last_error() == "ncclCommInitRank: rank 2 of 2 ranks");
  CHECK(comm == nullptr);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(handle, &state) == ncclInvalidArgument);
}

TEST_CASE("all devices of a process") {
  const Door door;
  ncclComm_t comms[2] = {};
  const int devices[2] = {1, 0};
  CHECK(ncclCommInitAll(comms, 2, devices) == ncclSuccess);
  int rank = -1;
  CHECK(ncclCommUserRank(comms[1], &rank) == ncclSuccess);
  CHECK(rank == 1);
}

TEST_CASE("where NCCL fails there is no communicator") {
  const Door door;
  const Failing failing("ncclCommInitRank", ncclSystemError);
  ncclComm_t comm = at<ncclComm>(8);
  CHECK(ncclCommInitRank(&comm, 2, unique_id(), 0) == ncclSystemError);
  CHECK(comm == nullptr);
}

TEST_CASE("split, shrink and grow make communicators of ours from NCCL's") {
  const Door door;
  const ncclComm_t parent = one_rank(4, 2);
  ncclComm_t split = nullptr, none = at<ncclComm>(8), shrunk = nullptr, grown = nullptr, newcomer = nullptr;
  CHECK(ncclCommSplit(parent, 1, 5, &split, nullptr) == ncclSuccess);
  CHECK(ncclCommSplit(parent, NCCL_SPLIT_NOCOLOR, 5, &none, nullptr) == ncclSuccess);
  CHECK(none == nullptr);
  int excluded[] = {3};
  CHECK(ncclCommShrink(parent, excluded, 1, &shrunk, nullptr, NCCL_SHRINK_ABORT) == ncclSuccess);
  CHECK(ncclCommGrow(parent, 6, nullptr, -1, &grown, nullptr) == ncclSuccess);
  const ncclUniqueId id = unique_id();
  CHECK(ncclCommGrow(nullptr, 6, &id, 5, &newcomer, nullptr) == ncclSuccess);
  int count = 0;
  CHECK((ncclCommCount(split, &count) == ncclSuccess && count == 4));
  CHECK((ncclCommCount(shrunk, &count) == ncclSuccess && count == 3));
  CHECK((ncclCommCount(grown, &count) == ncclSuccess && count == 6));
  CHECK((ncclCommUserRank(newcomer, &count) == ncclSuccess && count == 5));
  for (ncclComm_t comm : {split, shrunk, grown, newcomer, parent}) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("an error that comes by itself is NCCL's") {
  const Door door;
  const ncclComm_t comm = one_rank();
  const Failing failing("asynchronously", ncclRemoteError);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  CHECK(state == ncclRemoteError);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(Door::calls().find("ncclCommAbort(comm") != std::string::npos);
}

TEST_CASE("a nonblocking communicator of Paceline's is made behind the program's back") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = nonblocking();
  ncclComm_t comms[2] = {};
  CHECK(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config) == ncclInProgress);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  CHECK(state == ncclInProgress);
  int value = 1;
  CHECK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], nullptr) == ncclInvalidArgument);
  CHECK(last_error(comms[0]).find("ncclAllReduce: the communicator is still being made") == 0);
  CHECK(ncclCommDestroy(comms[0]) == ncclInvalidArgument);  // it does not wait for the others
  CHECK(last_error(comms[0]).find("ncclCommDestroy: the communicator is still being made") == 0);
  CHECK(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config) == ncclInProgress);
  for (ncclComm_t comm : comms)
    for (state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
      REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  CHECK(state == ncclSuccess);

  // A parent is in progress as long as its child is, which another rank has yet to join; also where it gets no child.
  ncclComm_t children[2] = {};
  CHECK(ncclCommSplit(comms[0], NCCL_SPLIT_NOCOLOR, 0, &children[0], &config) == ncclSuccess);
  CHECK(children[0] == nullptr);
  CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  CHECK(state == ncclInProgress);
  CHECK(ncclCommSplit(comms[1], 0, 0, &children[1], &config) == ncclSuccess);
  for (ncclComm_t comm : {comms[0], comms[1], children[1]}) {
    for (state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
      REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    CHECK(state == ncclSuccess);
  }
  CHECK(ncclCommDestroy(children[1]) == ncclSuccess);
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("what comes from a nonblocking communicator is nonblocking, also where NCCL stands beside it") {
  const Door door(has_engine, "gather");
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = nonblocking();
  ncclComm_t parent = nullptr, child = nullptr;
  ncclResult_t state = ncclInProgress;
  CHECK(ncclCommInitRankConfig(&parent, 1, id, 0, &config) == ncclInProgress);
  for (; state == ncclInProgress; std::this_thread::yield())
    REQUIRE(ncclCommGetAsyncError(parent, &state) == ncclSuccess);
  CHECK(ncclCommSplit(parent, 0, 0, &child, nullptr) == ncclSuccess);
  for (state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
    REQUIRE(ncclCommGetAsyncError(child, &state) == ncclSuccess);
  for (ncclComm_t comm : {child, parent}) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("a configuration that nobody started goes to NCCL unread, and NCCL refuses it") {
  const Door door;
  ncclConfig_t config{};
  config.size = sizeof config;
  config.commName = at<const char>(8);
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, 2, unique_id(), 1, &config) == ncclInvalidArgument);
  CHECK(comm == nullptr);
}

TEST_CASE("a configuration that nobody started is refused") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config{};
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
  CHECK(last_error() == "ncclCommInitRankConfig: the configuration was not started from NCCL_CONFIG_INITIALIZER");
}

TEST_CASE("a communicator that nobody joins can be aborted at once") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = nonblocking();
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(ncclCommAbort(comm) == ncclInvalidArgument);
}

TEST_CASE("who comes to a communicator that was aborted while it was made gets none") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = nonblocking();
  ncclComm_t left = nullptr, late = nullptr;
  CHECK(ncclCommInitRankConfig(&left, 2, id, 0, &config) == ncclInProgress);
  CHECK(ncclCommAbort(left) == ncclSuccess);
  CHECK(ncclCommInitRank(&late, 2, id, 1) == ncclRemoteError);
  CHECK(late == nullptr);
}

TEST_CASE("a communicator that another thread aborts while it is made is not made") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t waiting = nullptr, late = nullptr;
  ncclResult_t result = ncclSuccess;
  std::thread thread([&] { result = ncclCommInitRank(&waiting, 2, id, 0); });
  const auto handed_out = [&] { return std::atomic_ref<ncclComm_t>(waiting).load(); };
  while (handed_out() == nullptr) std::this_thread::yield();
  CHECK(ncclCommAbort(handed_out()) == ncclSuccess);
  CHECK(ncclCommInitRank(&late, 2, id, 1) == ncclRemoteError);
  thread.join();
  CHECK(result == ncclRemoteError);
  CHECK(waiting == nullptr);
  CHECK(late == nullptr);
}

TEST_CASE("while a nonblocking child is made its parent takes no calls, and can be aborted") {
  const Door door(has_engine, nullptr, nullptr);
  const std::vector<ncclComm_t> comms = nonblocking_ranks(2);
  ncclConfig_t config = nonblocking();
  ncclComm_t child = nullptr, other = nullptr;
  CHECK(ncclCommSplit(comms[0], 0, 0, &child, &config) == ncclSuccess);
  int value = 1;
  int none[] = {1};
  CHECK(ncclCommSplit(comms[0], 0, 0, &other, &config) == ncclInvalidArgument);
  CHECK(last_error(comms[0]) ==
        "ncclCommSplit: another communicator is still being made from this one (ncclCommGetAsyncError says when it is "
        "ready)");
  CHECK(ncclCommShrink(comms[0], none, 1, &other, &config, NCCL_SHRINK_DEFAULT) == ncclInvalidArgument);
  CHECK(ncclCommGrow(comms[0], 3, nullptr, -1, &other, &config) == ncclInvalidArgument);
  CHECK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], nullptr) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(comms[0]) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(comms[0]) == ncclInvalidArgument);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  CHECK(state == ncclInProgress);
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  for (state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
    REQUIRE(ncclCommGetAsyncError(child, &state) == ncclSuccess);
  CHECK(state == ncclRemoteError);
  for (ncclComm_t comm : {child, comms[1]}) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("the children of one parent are made in the order in which they were asked for, after its calls") {
  const Door door(has_engine, nullptr, nullptr);
  for (const bool blocking : {true, false})
    on_ranks(2, blocking, [&](int rank, ncclComm_t comm) -> std::string {
      ncclConfig_t config = nonblocking();
      config.blocking = blocking ? 1 : 0;
      for (int round = 0; round < 20; ++round) {
        ncclComm_t children[4] = {};
        int sum = 1;
        NCCL_EXPECT(ncclGroupStart());
        for (int i = 0; i < 4; ++i) {
          NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
          // Only in the order of the calls do both ranks give the same keys: every other child has the ranks reversed.
          NCCL_EXPECT(ncclCommSplit(comm, 0, i % 2 == 0 ? rank : -rank, &children[i], &config));
        }
        PACE_REQUIRE(ncclGroupEnd() == (blocking ? ncclSuccess : ncclInProgress));
        PACE_REQUIRE(sum == 16);
        for (int i = 0; i < 4; ++i) {
          ncclResult_t state = ncclInProgress;
          for (; state == ncclInProgress; std::this_thread::yield())
            NCCL_EXPECT(ncclCommGetAsyncError(children[i], &state));
          NCCL_EXPECT(state);
          int mine = -1, theirs = i;
          NCCL_EXPECT(ncclCommUserRank(children[i], &mine));
          PACE_REQUIRE(mine == (i % 2 == 0 ? rank : 1 - rank));
          NCCL_EXPECT(ncclBcast(&theirs, 1, ncclInt32, 0, children[i], nullptr));
          PACE_REQUIRE(theirs == i);
        }
        for (ncclComm_t child : children) NCCL_EXPECT(ncclCommDestroy(child));
      }
      return "";
    });
}

TEST_CASE("what no communicator can be made by is refused at once, as in NCCL") {
  const Door door(has_engine, nullptr, nullptr);
  ncclComm_t comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  const ncclComm_t comm = comms[0];
  ncclComm_t made = nullptr;
  int other[] = {1}, none[] = {77};
  ncclConfig_t config{};
  CHECK(ncclCommShrink(comm, other, 0, &made, nullptr, NCCL_SHRINK_DEFAULT) == ncclInvalidArgument);
  CHECK(ncclCommShrink(comm, other, -1, &made, nullptr, NCCL_SHRINK_DEFAULT) == ncclInvalidArgument);
  CHECK(ncclCommShrink(comm, none, 1, &made, nullptr, NCCL_SHRINK_DEFAULT) == ncclInvalidArgument);
  CHECK(last_error(comm) == "ncclCommShrink: 1 ranks to exclude, each of 0 to 1");
  CHECK(ncclCommGrow(comm, 2, nullptr, -1, &made, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommSplit(comm, 0, 0, &made, &config) == ncclInvalidArgument);
  CHECK(ncclCommShrink(comm, other, 1, &made, &config, NCCL_SHRINK_DEFAULT) == ncclInvalidArgument);
  CHECK(ncclCommGrow(comm, 3, nullptr, -1, &made, &config) == ncclInvalidArgument);
  CHECK(last_error() == "ncclCommGrow: the configuration was not started from NCCL_CONFIG_INITIALIZER");
  ncclUniqueId ids[2]{};
  for (ncclUniqueId& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRankScalable(&made, 1, 0, 2, ids, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommInitRankScalable(&made, 1, 0, 0, ids, nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "ncclCommInitRankScalable: 0 ids for 1 ranks");
  CHECK(ncclCommInitRankScalable(&made, 1, 0, 1, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "ncclCommInitRankScalable: commIds is NULL");
  CHECK(ncclCommInitAll(&made, 0, nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "ncclCommInitAll: 0 devices");
  CHECK(made == nullptr);
  for (ncclComm_t one : comms) CHECK(ncclCommAbort(one) == ncclSuccess);
}

TEST_CASE("when a parent says that it is ready its nonblocking child is, too") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(2, false, [](int rank, ncclComm_t comm) -> std::string {
    ncclConfig_t config = nonblocking();
    for (int round = 0; round < 300; ++round) {
      ncclComm_t child = nullptr;
      NCCL_EXPECT(ncclCommSplit(comm, 0, rank, &child, &config));
      for (ncclResult_t state = ncclInProgress; state == ncclInProgress;)
        NCCL_EXPECT(ncclCommGetAsyncError(comm, &state));
      int mine = -1, sum = 1;
      NCCL_EXPECT(ncclCommUserRank(child, &mine));
      NCCL_EXPECT(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, child, nullptr));
      PACE_REQUIRE((mine == rank && sum == 2));
      NCCL_EXPECT(ncclCommDestroy(child));
    }
    return "";
  });
}

TEST_CASE("a call that comes before a communicator is ready is refused, and brings no communicator of NCCL's") {
  const Door door(has_engine, nullptr, nullptr);
  ncclConfig_t config = nonblocking();
  for (int round = 0; round < 1500; ++round) {
    ncclUniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclComm_t comm = nullptr;
    REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
    int rank = -1;
    ncclResult_t asked = ncclInvalidArgument;
    while (asked == ncclInvalidArgument) asked = ncclCommUserRank(comm, &rank);
    REQUIRE_MESSAGE(asked == ncclSuccess, last_error(comm));
    REQUIRE(ncclCommDestroy(comm) == ncclSuccess);
  }
}

TEST_CASE("while one thread is in a blocking split another one finds the parent ready") {
  const Door door(has_engine, nullptr, nullptr);
  ncclComm_t comms[2] = {}, children[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  std::thread splitting([&] { CHECK(ncclCommSplit(comms[0], 0, 0, &children[0], nullptr) == ncclSuccess); });
  // Until it is among the unborn, of which it is one until the other rank comes.
  const auto is_in_split = [&] {
    const std::lock_guard lock(comms[0]->mutex);
    return !comms[0]->unborn.empty();
  };
  CHECK(comes(is_in_split));
  ncclResult_t state = ncclInProgress;
  CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  CHECK(state == ncclSuccess);
  int count = 0;
  CHECK(ncclCommCount(comms[0], &count) == ncclSuccess);
  CHECK(ncclCommSplit(comms[1], 0, 0, &children[1], nullptr) == ncclSuccess);
  splitting.join();
  for (ncclComm_t comm : {children[0], children[1], comms[0], comms[1]}) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("while a nonblocking child is made buffers can be registered with its parent, and all is given back") {
  const Door door(has_engine, nullptr, nullptr);
  const std::vector<ncclComm_t> comms = nonblocking_ranks(2);
  ncclConfig_t config = nonblocking();
  float scalar = 2;
  ncclRedOp_t op{};
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comms[0]) == ncclSuccess);
  ncclComm_t child = nullptr;
  CHECK(ncclCommSplit(comms[0], 0, 0, &child, &config) == ncclSuccess);
  void* handle = nullptr;
  CHECK(ncclCommRegister(comms[0], at<void>(16), 8, &handle) == ncclSuccess);
  CHECK(ncclCommDeregister(comms[0], handle) == ncclSuccess);
  CHECK(ncclRedOpDestroy(op, comms[0]) == ncclSuccess);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  CHECK(state == ncclInProgress);
  for (ncclComm_t comm : {comms[0], child, comms[1]}) CHECK(ncclCommAbort(comm) == ncclSuccess);
}
