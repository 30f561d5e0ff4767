// Calls that Paceline serves, and calls of its communicators that NCCL does.
#include <string>

#include "cuda/driver/fake_driver.h"
#include "nccl/served_ranks.h"

using namespace paceline;
using namespace paceline::testing;

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

TEST_CASE("an operator with a scalar of the host is Paceline's") {
  const Door door(has_engine, nullptr, nullptr);
  on_ranks(2, [](int rank, ncclComm_t comm) -> std::string {
    float factor = rank == 0 ? 2 : 10, value = 3;
    ncclRedOp_t op{};
    NCCL_EXPECT(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, nullptr));
    PACE_REQUIRE(value == 36);
    NCCL_EXPECT(ncclRedOpDestroy(op, comm));
    ncclRedOp_t next{};
    NCCL_EXPECT(ncclRedOpCreatePreMulSum(&next, &factor, ncclFloat32, ncclScalarHostImmediate, comm));
    PACE_REQUIRE(next != op);
    PACE_REQUIRE(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, nullptr) == ncclInvalidArgument);
    PACE_REQUIRE(last_error(comm) == "ncclAllReduce: there is no operation " + std::to_string(op));
    PACE_REQUIRE(ncclReduce(&value, &value, 1, ncclFloat32, static_cast<ncclRedOp_t>(77), 0, comm, nullptr) ==
                 ncclInvalidArgument);
    PACE_REQUIRE(last_error(comm) == "ncclReduce: there is no operation 77");
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

TEST_CASE("a call without elements is Paceline's wherever its buffers are") {
  with_fake_driver([](const FakeDriver&) {
    const Door door(has_engine);
    ncclComm_t comm = nullptr;
    REQUIRE(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
    nccl::replace_choice(nccl::choose(nullptr, R"({"devices":1})"));
    paceHostStream_t stream = nullptr;
    REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
    auto* const on_stream = reinterpret_cast<cudaStream_t>(stream);
    int value = 1;
    CHECK(ncclAllReduce(&value, &value, 0, ncclInt32, ncclSum, comm, on_stream) == ncclSuccess);
    CHECK(ncclBroadcast(&value, &value + 1, 0, ncclInt32, 0, comm, on_stream) == ncclSuccess);
    CHECK(Door::calls().empty());
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    CHECK(paceHostStreamDestroy(stream) == paceSuccess);
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

TEST_CASE("an operator that is destroyed in a group is gone also where the group does not run") {
  const Door door(has_engine);
  on_ranks(1, [](int, ncclComm_t comm) -> std::string {
    ncclRedOp_t op{};
    float value = 1;
    NCCL_EXPECT(ncclRedOpCreatePreMulSum(&op, at<void>(48), ncclFloat32, ncclScalarDevice, comm));
    NCCL_EXPECT(ncclGroupStart());
    NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclFloat32, op, comm, nullptr));
    NCCL_EXPECT(ncclRedOpDestroy(op, comm));
    PACE_REQUIRE(ncclSend(&value, 1, ncclFloat32, 7, comm, nullptr) == ncclInvalidArgument);
    PACE_REQUIRE(ncclGroupEnd() == ncclInvalidArgument);
    PACE_REQUIRE(ncclRedOpDestroy(op, comm) == ncclInvalidArgument);
    return "";
  });
}
