// Calls of communicators that NCCL serves alone, as the fake sees them.
#include "nccl/forward.h"

#include "nccl/door.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

std::string number_of(const std::string& calls) {
  const std::size_t at = calls.find("comm");
  return at == std::string::npos ? "" : calls.substr(at, calls.find_first_not_of("0123456789", at + 4) - at);
}

// The name that the fake has for the communicator's real one.
std::string name_of(ncclComm_t comm) {
  int count = 0;
  (void)Door::calls();
  REQUIRE(ncclCommCount(comm, &count) == ncclSuccess);
  return number_of(Door::calls());
}

}  // namespace

TEST_CASE("every call arrives with its arguments and the real handle") {
  const Door door;
  const ncclComm_t comm = one_rank();
  const std::string real = name_of(comm);
  auto* send = at<void>(16);
  auto* recv = at<void>(32);
  auto* stream = at<CUstream_st>(64);
  CHECK(ncclAllReduce(send, recv, 5, ncclFloat32, ncclAvg, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclAllReduce(16, 32, 5, 7, 4, " + real + ", 64)\n");
  CHECK(ncclBroadcast(send, recv, 5, ncclInt8, 1, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclBroadcast(16, 32, 5, 0, 1, " + real + ", 64)\n");
  CHECK(ncclBcast(recv, 5, ncclInt8, 1, comm, stream) == ncclSuccess);
  CHECK(Door::calls() ==
        "ncclBcast(32, 5, 0, 1, " + real + ", 64)\nncclBroadcast(32, 32, 5, 0, 1, " + real + ", 64)\n");
  CHECK(ncclReduce(send, recv, 5, ncclBfloat16, ncclMax, 1, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclReduce(16, 32, 5, 9, 2, 1, " + real + ", 64)\n");
  CHECK(ncclAllGather(send, recv, 5, ncclFloat8e5m2, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclAllGather(16, 32, 5, 11, " + real + ", 64)\n");
  CHECK(ncclReduceScatter(send, recv, 5, ncclInt64, ncclProd, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclReduceScatter(16, 32, 5, 4, 1, " + real + ", 64)\n");
  CHECK(ncclGather(send, recv, 5, ncclUint8, 1, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclGather(16, 32, 5, 1, 1, " + real + ", 64)\n");
  CHECK(ncclScatter(send, recv, 5, ncclUint8, 1, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclScatter(16, 32, 5, 1, 1, " + real + ", 64)\n");
  CHECK(ncclAlltoAll(send, recv, 5, ncclUint8, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclAlltoAll(16, 32, 5, 1, " + real + ", 64)\n");
  CHECK(ncclSend(send, 5, ncclUint8, 0, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclSend(16, 5, 1, 0, " + real + ", 64)\n");
  CHECK(ncclRecv(recv, 5, ncclUint8, 0, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclRecv(32, 5, 1, 0, " + real + ", 64)\n");
  CHECK(ncclPutSignal(send, 5, ncclUint8, 0, at<ncclWindow_vidmem>(8), 3, 4, 5, 6, comm, stream) == ncclSuccess);
  CHECK(Door::calls() == "ncclPutSignal(16, 5, 1, 0, 8, 3, 4, 5, 6, " + real + ", 64)\n");
  CHECK(ncclDevCommCreate(comm, at<ncclDevCommRequirements_t>(24), at<ncclDevComm_t>(40)) == ncclSuccess);
  CHECK(Door::calls() == "ncclDevCommCreate(" + real + ", 24, 40)\n");
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(Door::calls() == "ncclCommDestroy(" + real + ")\n");
}

TEST_CASE("a handle of NCCL's own goes on as it is") {
  const Door door;
  ncclComm_t real = nullptr;
  REQUIRE(fake().ncclCommInitRank(&real, 5, ncclUniqueId{}, 3) == ncclSuccess);
  const std::string name = name_of(real);
  CHECK(ncclBroadcast(at<void>(16), at<void>(32), 5, ncclInt8, 1, real, nullptr) == ncclSuccess);
  CHECK(Door::calls() == "ncclBroadcast(16, 32, 5, 0, 1, " + name + ", 0)\n");
  ncclResult_t state = ncclInternalError;
  CHECK(ncclCommGetAsyncError(real, &state) == ncclSuccess);
  CHECK(state == ncclSuccess);
  CHECK(ncclTeamWorld(real).nRanks == 5);
}

TEST_CASE("answers that are no codes come back") {
  const Door door;
  const ncclComm_t comm = one_rank(5, 3);
  const ncclTeam_t team = ncclTeamWorld(comm);
  CHECK(team.nRanks == 5);
  CHECK(team.rank == 3);
  CHECK(ncclLLA2ACalcSlots(6, 7) == 42);
  int rank = 0;
  CHECK(ncclCommUserRank(comm, &rank) == ncclSuccess);
  CHECK(rank == 3);
}

TEST_CASE("operators and registrations are NCCL's own") {
  const Door door;
  const ncclComm_t comm = one_rank();
  const std::string real = name_of(comm);
  ncclRedOp_t op{};
  float scalar = 2;
  CHECK(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm) == ncclSuccess);
  CHECK(op == 77);
  (void)Door::calls();
  CHECK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, op, comm, nullptr) == ncclSuccess);
  CHECK(Door::calls() == "ncclAllReduce(0, 0, 0, 7, 77, " + real + ", 0)\n");
  void* handle = nullptr;
  CHECK(ncclCommRegister(comm, at<void>(16), 8, &handle) == ncclSuccess);
  CHECK(handle == at<void>(0x1234));
}

TEST_CASE("a group opens NCCL's with its first call there, and closes it") {
  const Door door;
  const ncclComm_t one = one_rank(), two = one_rank();
  const std::string first = name_of(one), second = name_of(two);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(Door::calls() == "");
  CHECK(ncclSend(nullptr, 1, ncclInt8, 0, one, nullptr) == ncclSuccess);
  CHECK(ncclRecv(nullptr, 1, ncclInt8, 0, two, nullptr) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(Door::calls() ==
        "ncclGroupStart()\nncclSend(0, 1, 0, 0, " + first + ", 0)\nncclRecv(0, 1, 0, 0, " + second + ", 0)\n");
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(Door::calls() == "ncclGroupEnd()\n");
}

TEST_CASE("an empty group calls nobody") {
  const Door door;
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(Door::calls() == "");
}

TEST_CASE("the end of no group is an error") {
  const Door door;
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(last_error() == "ncclGroupEnd without ncclGroupStart");
}

TEST_CASE("a group's end tells the first error of its calls") {
  const Door door;
  const ncclComm_t comm = one_rank();
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclAllReduce(nullptr, nullptr, 1, ncclInt8, ncclSum, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(ncclSend(nullptr, 1, ncclInt8, 0, comm, nullptr) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
}

TEST_CASE("a group with a call that was refused runs none of NCCL's, and the first error's sentence stays") {
  const Door door;
  const ncclComm_t comm = one_rank();
  const std::string real = name_of(comm);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclSend(nullptr, 1, ncclInt8, 0, comm, nullptr) == ncclSuccess);
  CHECK(ncclRecv(nullptr, 1, ncclInt8, 0, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(Door::calls() == "ncclGroupStart()\nncclSend(0, 1, 0, 0, " + real + ", 0)\n");
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(Door::calls() == "ncclAllReduce(0, 0, 0, 0, 0, null, 0)\nncclGroupEnd()\n");
  CHECK(last_error() == "ncclRecv: the communicator is NULL");
}

TEST_CASE("the end of a group fails as NCCL's does") {
  const Door door;
  const Failing failing("ncclGroupEnd", ncclRemoteError);
  const ncclComm_t comm = one_rank();
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclSend(nullptr, 1, ncclInt8, 0, comm, nullptr) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclRemoteError);
}

TEST_CASE("a group's time is NCCL's estimate") {
  const Door door;
  const ncclComm_t comm = one_rank();
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclAllReduce(nullptr, nullptr, 1, ncclInt8, ncclSum, comm, nullptr) == ncclSuccess);
  ncclSimInfo_t info{};
  CHECK(ncclGroupSimulateEnd(&info) == ncclSuccess);
  CHECK(info.estimatedTime == 12.5F);
}

TEST_CASE("NCCL's error comes back with NCCL's sentence") {
  const Door door;
  const ncclComm_t comm = one_rank();
  CHECK(ncclAllReduce(nullptr, nullptr, 1, ncclInt8, ncclSum, nullptr, nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "ncclAllReduce: the communicator is NULL");
  const Failing failing("ncclAllReduce", ncclUnhandledCudaError);
  CHECK(ncclAllReduce(nullptr, nullptr, 1, ncclInt8, ncclSum, comm, nullptr) == ncclUnhandledCudaError);
  CHECK(last_error(comm) == "the fake's last error");
}

TEST_CASE("a function that this NCCL does not have is an error that says so") {
  nccl::Real older = fake();
  older.version = 22809;
  older.ncclCommSuspend = nullptr;
  older.ncclParamBind = nullptr;
  const Door door(nullptr, nullptr, &older);
  const ncclComm_t comm = one_rank();
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == 22809);
  CHECK(ncclCommSuspend(comm, 1) == ncclInvalidUsage);
  CHECK(last_error(comm) == "ncclCommSuspend: NCCL 2.28.9 (" + fake().path + ") has no such function");
  CHECK(ncclParamBind(nullptr, "x") == ncclInvalidUsage);
}

TEST_CASE("where there is no NCCL and one is needed, the error says for which call and why") {
  const Door door(nullptr, nullptr, nullptr);
  ncclUniqueId id{};
  CHECK(ncclGetUniqueId(&id) == ncclInvalidUsage);
  CHECK(last_error() ==
        "ncclGetUniqueId needs NCCL itself (Paceline has no engine for GPUs in this build or on this machine), and "
        "there is no libnccl.so.2 in /nowhere. Install nvidia-nccl-cu13, or set PACELINE_NCCL_LIBRARY to NCCL's "
        "libnccl.so.2");
  void* memory = nullptr;
  CHECK(ncclMemAlloc(&memory, 8) == ncclInvalidUsage);
  CHECK(last_error().find("ncclMemAlloc needs NCCL itself (Paceline does not serve it)") == 0);
  CHECK(ncclLLA2ACalcSlots(6, 7) == 0);
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == 23007);
}

TEST_CASE("a destroyed communicator and one that is none are errors by name") {
  const Door door;
  const ncclComm_t comm = one_rank();
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(ncclAllReduce(nullptr, nullptr, 1, ncclInt8, ncclSum, comm, nullptr) == ncclInvalidArgument);
  CHECK(last_error() == "ncclAllReduce: the communicator has been destroyed, or is none");
  CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(nullptr) == ncclSuccess);
}

TEST_CASE("threads forward at once, each with its own communicator and groups") {
  const Door door;
  on_every_rank(4, [](int rank) -> std::string {
    ncclUniqueId id{};
    PACE_REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    ncclComm_t comm = nullptr;
    PACE_REQUIRE(ncclCommInitRank(&comm, 4, id, rank) == ncclSuccess);
    for (int i = 0; i < 200; ++i) {
      PACE_REQUIRE(ncclGroupStart() == ncclSuccess);
      PACE_REQUIRE(ncclSend(nullptr, 1, ncclInt8, 0, comm, nullptr) == ncclSuccess);
      PACE_REQUIRE(ncclGroupEnd() == ncclSuccess);
      ncclResult_t state = ncclInternalError;
      PACE_REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
      PACE_REQUIRE(ncclAllReduce(nullptr, nullptr, 1, ncclInt8, ncclSum, nullptr, nullptr) == ncclInvalidArgument);
    }
    PACE_REQUIRE(ncclCommDestroy(comm) == ncclSuccess);
    return "";
  });
}
