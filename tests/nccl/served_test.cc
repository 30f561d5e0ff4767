// Calls that Paceline serves: its host buffers and host streams stand for a GPU's.
#include <array>
#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "cuda/fake_driver.h"
#include "nccl/door.h"

using namespace paceline;
using namespace paceline::testing;

// Leave the rank's function with a complaint unless the call succeeds.
#define NCCL_EXPECT(call)                                                                             \
  do {                                                                                                \
    if (ncclResult_t nccl_result = (call); nccl_result != ncclSuccess)                                \
      return std::to_string(__LINE__) + ": " + ncclGetErrorString(nccl_result) + ": " + last_error(); \
  } while (false)

namespace {

// function(rank, communicator) on every rank of one communicator.
template <class Function>
void on_ranks(int ranks, Function function) {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  on_every_rank(ranks, [&](int rank) -> std::string {
    ncclComm_t comm = nullptr;
    NCCL_EXPECT(ncclCommInitRank(&comm, ranks, id, rank));
    std::string complaint = function(rank, comm);
    NCCL_EXPECT(ncclCommDestroy(comm));
    return complaint;
  });
}

using Floats = std::vector<float>;

ncclConfig_t nonblocking() {
  ncclConfig_t config{};
  config.size = sizeof config;
  config.magic = NCCL_API_MAGIC;
  config.blocking = 0;
  return config;
}

}  // namespace

TEST_CASE("Paceline serves every collective without NCCL") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(3, [](int rank, ncclComm_t comm) -> std::string {
    const auto mine = static_cast<float>(rank + 1);
    Floats in{mine, 10 * mine}, out(2), all(6), spread{1, 2, 3, 4, 5, 6};
    NCCL_EXPECT(ncclAllReduce(in.data(), out.data(), 2, ncclFloat32, ncclSum, comm, nullptr));
    PACE_REQUIRE((out == Floats{6, 60}));
    NCCL_EXPECT(ncclAllReduce(in.data(), out.data(), 2, ncclFloat32, ncclAvg, comm, nullptr));
    PACE_REQUIRE((out == Floats{2, 20}));
    NCCL_EXPECT(ncclBroadcast(in.data(), out.data(), 2, ncclFloat32, 2, comm, nullptr));
    PACE_REQUIRE((out == Floats{3, 30}));
    out = in;
    NCCL_EXPECT(ncclBcast(out.data(), 2, ncclFloat32, 1, comm, nullptr));
    PACE_REQUIRE((out == Floats{2, 20}));
    NCCL_EXPECT(ncclReduce(in.data(), out.data(), 2, ncclFloat32, ncclMax, 0, comm, nullptr));
    PACE_REQUIRE((rank != 0 || out == Floats{3, 30}));
    NCCL_EXPECT(ncclAllGather(in.data(), all.data(), 2, ncclFloat32, comm, nullptr));
    PACE_REQUIRE((all == Floats{1, 10, 2, 20, 3, 30}));
    NCCL_EXPECT(ncclReduceScatter(spread.data(), out.data(), 2, ncclFloat32, ncclSum, comm, nullptr));
    PACE_REQUIRE(out[0] == 3 * spread[static_cast<std::size_t>(2 * rank)]);
    NCCL_EXPECT(ncclGather(in.data(), all.data(), 2, ncclFloat32, 1, comm, nullptr));
    NCCL_EXPECT(ncclScatter(spread.data(), out.data(), 2, ncclFloat32, 1, comm, nullptr));
    PACE_REQUIRE(
        (out == Floats{spread[static_cast<std::size_t>(2 * rank)], spread[static_cast<std::size_t>(2 * rank + 1)]}));
    NCCL_EXPECT(ncclAlltoAll(spread.data(), all.data(), 2, ncclFloat32, comm, nullptr));
    PACE_REQUIRE(all[0] == spread[static_cast<std::size_t>(2 * rank)]);
    return "";
  });
}

TEST_CASE("sends and receives of a group pass each other") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(2, [](int rank, ncclComm_t comm) -> std::string {
    const int mine = rank + 40;
    int theirs = 0, sum = 0;
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclSend(&mine, 1, ncclInt32, 1 - rank, comm, nullptr));
    NCCL_EXPECT(ncclRecv(&theirs, 1, ncclInt32, 1 - rank, comm, nullptr));
    NCCL_EXPECT(ncclAllReduce(&mine, &sum, 1, ncclInt32, ncclSum, comm, nullptr));
    PACE_REQUIRE(theirs == 0);
    NCCL_EXPECT(ncclGroupEnd());
    PACE_REQUIRE(theirs == 41 - rank);
    PACE_REQUIRE(sum == 81);
    return "";
  });
}

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

TEST_CASE("an operator with a scalar of the host is Paceline's") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(2, [](int rank, ncclComm_t comm) -> std::string {
    float factor = rank == 0 ? 2 : 10, value = 3;
    ncclRedOp_t op{};
    NCCL_EXPECT(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, nullptr));
    PACE_REQUIRE(value == 36);
    NCCL_EXPECT(ncclRedOpDestroy(op, comm));
    PACE_REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, nullptr) == ncclInvalidArgument);
    PACE_REQUIRE(ncclRedOpDestroy(op, comm) == ncclInvalidArgument);
    return "";
  });
}

TEST_CASE("what Paceline does not serve brings NCCL's communicator, once, on every rank") {
  const Door door(has_engine);
  on_ranks(2, [](int rank, ncclComm_t comm) -> std::string {
    int one = 1;
    NCCL_EXPECT(ncclAllReduce(&one, &one, 1, ncclInt32, ncclSum, comm, nullptr));
    ncclWindow_t window = nullptr;
    NCCL_EXPECT(ncclCommWindowRegister(comm, &one, 4, &window, 1));
    NCCL_EXPECT(ncclCommWindowRegister(comm, &one, 4, &window, 1));
    const ncclTeam_t team = ncclTeamWorld(comm);
    PACE_REQUIRE(team.nRanks == 2);
    PACE_REQUIRE(team.rank == rank);
    return "";
  });
  const std::string calls = Door::calls();
  std::size_t made = 0;
  for (std::size_t at = calls.find("ncclCommInitRankConfig("); at != std::string::npos;
       at = calls.find("ncclCommInitRankConfig(", at + 1))
    ++made;
  CHECK(made == 2);
  CHECK(calls.find("ncclGetUniqueId(") == calls.rfind("ncclGetUniqueId("));
  CHECK(calls.find("ncclAllReduce(") == std::string::npos);
}

TEST_CASE("without NCCL such a call is an error on every rank that says what needed it") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(2, [](int, ncclComm_t comm) -> std::string {
    ncclWindow_t window = nullptr;
    PACE_REQUIRE(ncclCommWindowRegister(comm, nullptr, 4, &window, 1) == ncclInvalidUsage);
    PACE_REQUIRE(last_error(comm).find("ncclCommWindowRegister needs NCCL itself (Paceline does not serve it), and "
                                       "there is no libnccl.so.2 in /nowhere") == 0);
    return "";
  });
}

TEST_CASE("an operator with a scalar of the device makes its calls NCCL's") {
  const Door door(has_engine);
  on_ranks(2, [](int, ncclComm_t comm) -> std::string {
    ncclRedOp_t op{};
    float value = 1;
    NCCL_EXPECT(ncclRedOpCreatePreMulSum(&op, at<void>(48), ncclFloat32, ncclScalarDevice, comm));
    NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, nullptr));
    NCCL_EXPECT(ncclRedOpDestroy(op, comm));
    return "";
  });
  const std::string calls = Door::calls();
  CHECK(calls.find(", 48, 7, 0, comm") != std::string::npos);
  CHECK(calls.find(", 1, 7, 77, comm") != std::string::npos);
  CHECK(calls.find("ncclRedOpDestroy(77, comm") != std::string::npos);
}

TEST_CASE("on GPUs a call on host memory is NCCL's") {
  with_fake_driver([](const FakeDriver& driver) {
    FakeRange range(driver, fake_granularity);
    range.map(0, fake_granularity);
    int* const on_gpu = reinterpret_cast<int*>(range.at(0));
    const Door door(has_engine);
    ncclComm_t comm = nullptr;
    REQUIRE(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
    nccl::replace_choice(nccl::choose(nullptr, R"({"devices":1})"));
    on_gpu[0] = 2;
    REQUIRE(ncclAllReduce(&on_gpu[0], &on_gpu[1], 1, ncclInt32, ncclSum, comm, nullptr) == ncclSuccess);
    REQUIRE(on_gpu[1] == 2);
    REQUIRE(Door::calls().empty());
    int on_host = 1;
    REQUIRE(ncclAllReduce(&on_host, &on_host, 1, ncclInt32, ncclSum, comm, nullptr) == ncclSuccess);
    REQUIRE(Door::calls().find("ncclAllReduce(") != std::string::npos);
  });
}

TEST_CASE("on GPUs and without NCCL a call on host memory is an error that says so") {
  with_fake_driver([](const FakeDriver&) {
    const Door door(has_engine, nullptr, nullptr);
    ncclComm_t comm = nullptr;
    REQUIRE(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
    nccl::replace_choice(nccl::choose(nullptr, R"({"devices":1})"));
    int value = 1;
    REQUIRE(ncclBcast(&value, 1, ncclInt32, 0, comm, nullptr) == ncclInvalidUsage);
    REQUIRE(last_error(comm).find("ncclBcast needs NCCL itself (Paceline serves it on GPU memory, by operators whose "
                                  "scalars lie in host memory), and there is no libnccl.so.2 in /nowhere") == 0);
  });
}

TEST_CASE("an operator may be destroyed before the group of its calls ends") {
  const Door door(has_engine);
  on_ranks(2, [](int, ncclComm_t comm) -> std::string {
    ncclRedOp_t op{};
    float value = 1;
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclRedOpCreatePreMulSum(&op, at<void>(48), ncclFloat32, ncclScalarDevice, comm));
    NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, nullptr));
    NCCL_EXPECT(ncclRedOpDestroy(op, comm));
    NCCL_EXPECT(ncclGroupEnd());
    PACE_REQUIRE(ncclRedOpDestroy(op, comm) == ncclInvalidArgument);
    return "";
  });
  const std::string calls = Door::calls();
  const std::size_t called = calls.find(", 1, 7, 77, comm");
  CHECK(called != std::string::npos);
  CHECK(calls.find("ncclRedOpDestroy(77, comm") != std::string::npos);
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

TEST_CASE("a group with a rank that cannot be makes none of Paceline's, and waits for nobody") {
  const Door door(has_engine, nullptr, nullptr);
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = nonblocking();
  ncclComm_t blocking = nullptr, other = nullptr, none = nullptr;
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclCommInitRank(&blocking, 3, id, 0) == ncclSuccess);
  CHECK(ncclCommInitRankConfig(&other, 3, id, 1, &config) == ncclInProgress);
  const ncclComm_t handles[] = {blocking, other};
  CHECK(ncclCommInitRank(&none, 3, id, 3) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(last_error() == "ncclCommInitRank: rank 3 of 3 ranks");
  for (ncclComm_t comm : {blocking, other, none}) CHECK(comm == nullptr);
  for (ncclComm_t handle : handles) {
    ncclResult_t state = ncclSuccess;
    CHECK(ncclCommGetAsyncError(handle, &state) == ncclSuccess);
    CHECK(state == ncclInvalidArgument);
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

TEST_CASE("forwarded services go to NCCL's communicator, which is there from the start") {
  const Door door(has_engine, "all_reduce");
  on_ranks(2, [](int, ncclComm_t comm) -> std::string {
    int value = 1;
    NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
    PACE_REQUIRE(value == 1);
    NCCL_EXPECT(ncclReduceScatter(std::array<int, 2>{2, 2}.data(), &value, 1, ncclInt32, ncclSum, comm, nullptr));
    PACE_REQUIRE(value == 4);
    return "";
  });
  const std::string calls = Door::calls();
  CHECK(calls.find("ncclAllReduce(") != std::string::npos);
  CHECK(calls.find("ncclReduceScatter(") == std::string::npos);
}

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
  CHECK(ncclCommSplit(comms[0], NCCL_SPLIT_NOCOLOR, 0, &children[0], &config) == ncclInProgress);
  CHECK(children[0] == nullptr);
  CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess);
  CHECK(state == ncclInProgress);
  CHECK(ncclCommSplit(comms[1], 0, 0, &children[1], &config) == ncclInProgress);
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
  CHECK(ncclCommSplit(parent, 0, 0, &child, nullptr) == ncclInProgress);
  for (state = ncclInProgress; state == ncclInProgress; std::this_thread::yield())
    REQUIRE(ncclCommGetAsyncError(child, &state) == ncclSuccess);
  for (ncclComm_t comm : {child, parent}) CHECK(ncclCommDestroy(comm) == ncclSuccess);
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

TEST_CASE("Paceline's errors are NCCL's codes, with Paceline's sentence") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    int value = 1;
    PACE_REQUIRE(ncclBroadcast(&value, &value, 1, ncclInt32, 7, comm, nullptr) == ncclInvalidArgument);
    PACE_REQUIRE(last_error(comm) == "broadcast: root 7 is not among the ranks 0..0");
    return "";
  });
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
