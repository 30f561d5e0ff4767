// Arguments that the C API must refuse, and what it then says.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "comm/threads.h"

namespace paceline::testing {
namespace {

constexpr int bad_number = 99;
// As C programs can give them.
paceDataType_t type_of(int number) {
  paceDataType_t type;
  std::memcpy(&type, &number, sizeof type);
  return type;
}
paceRedOp_t op_of(int number) { return static_cast<paceRedOp_t>(number); }

bool last_error_says(const char* words) { return std::strstr(paceGetLastError(nullptr), words) != nullptr; }

TEST_CASE("buffers that overlap otherwise than in place are refused") {
  const Ranks communicator(1);
  paceComm_t comm = communicator[0];
  int values[101] = {};
  const auto sum = [&](int* send, int* recv) {
    return paceAllReduce(send, recv, 100, paceInt32, paceSum, comm, nullptr);
  };
  CHECK(sum(values, values + 1) == paceInvalidArgument);
  CHECK(last_error_says("overlap"));
  CHECK(sum(values + 1, values) == paceInvalidArgument);
  CHECK(sum(values, values) == paceSuccess);
  CHECK(paceAllReduce(values, values + 50, 50, paceInt32, paceSum, comm, nullptr) == paceSuccess);
  const Ranks four(4);
  four.run([](int rank, paceComm_t of_four) -> std::string {
    std::vector<int> all(40, rank);
    PACE_EXPECT(paceAllGather(all.data() + 10 * rank, all.data(), 10, paceInt32, of_four, nullptr));
    for (int i = 0; i < 40; ++i) PACE_REQUIRE(all[static_cast<std::size_t>(i)] == i / 10);
    PACE_EXPECT(paceAllGather(all.data() + 9, all.data(), 10, paceInt32, of_four, nullptr), paceInvalidArgument);
    return "";
  });
}

TEST_CASE("a group's messages have places of their own, but for those of a rank to itself") {
  const Ranks communicator(1);
  paceComm_t comm = communicator[0];
  int values[8] = {1, 2, 3, 4};
  const auto exchange = [&](int* from, int* to, std::size_t count) {
    CHECK(paceGroupStart() == paceSuccess);
    CHECK(paceSend(from, count, paceInt32, 0, comm, nullptr) == paceSuccess);
    CHECK(paceRecv(to, count, paceInt32, 0, comm, nullptr) == paceSuccess);
    return paceGroupEnd();
  };
  CHECK(exchange(values, values + 4, 4) == paceSuccess);
  CHECK(values[7] == 4);
  CHECK(exchange(values, values, 4) == paceSuccess);
  CHECK(exchange(values, values, 0) == paceSuccess);
  for (const int apart : {1, 3}) {
    CHECK(exchange(values, values + apart, 4) == paceInvalidArgument);
    CHECK(last_error_says("the send to rank 0 and the receive from rank 0 of one group use the same memory"));
    CHECK(exchange(values + apart, values, 4) == paceInvalidArgument);
  }
  CHECK(paceGroupStart() == paceSuccess);
  for (int i = 0; i < 2; ++i) {  // one is sent twice, into the same place
    CHECK(paceSend(values, 2, paceInt32, 0, comm, nullptr) == paceSuccess);
    CHECK(paceRecv(values + 4, 2, paceInt32, 0, comm, nullptr) == paceSuccess);
  }
  CHECK(paceGroupEnd() == paceInvalidArgument);
  CHECK(paceGroupStart() == paceSuccess);
  for (int* const from : {values, values + 4}) {  // to change places
    CHECK(paceSend(from, 4, paceInt32, 0, comm, nullptr) == paceSuccess);
    CHECK(paceRecv(from == values ? values + 4 : values, 4, paceInt32, 0, comm, nullptr) == paceSuccess);
  }
  CHECK(paceGroupEnd() == paceInvalidArgument);
  CHECK(exchange(values, values + 4, 4) == paceSuccess);
}

TEST_CASE("a count that the buffer has no memory for is refused before anything is made for it") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    std::vector<double> few(1 << 10, rank);
    const std::size_t many = std::size_t{1} << 40;
    PACE_EXPECT(paceAllReduce(few.data(), few.data(), many, paceFloat64, paceSum, comm, nullptr), paceInvalidArgument);
    PACE_REQUIRE(std::strstr(paceGetLastError(comm), "the send buffer has not the 8796093022208 bytes") != nullptr);
    PACE_EXPECT(paceSend(few.data(), many, paceFloat64, 1 - rank, comm, nullptr), paceInvalidArgument);
    PACE_EXPECT(paceAllReduce(few.data(), few.data(), few.size(), paceFloat64, paceSum, comm, nullptr));
    PACE_REQUIRE(few.front() == 1);
    return "";
  });
}

TEST_CASE("a collective checks its arguments") {
  const Ranks communicator(1);
  paceComm_t comm = communicator[0];
  int in = 1;
  int out = 0;
  CHECK(paceAllReduce(&in, &out, 1, paceInt32, paceSum, nullptr, nullptr) == paceInvalidArgument);
  CHECK(last_error_says("NULL"));
  CHECK(paceAllReduce(nullptr, &out, 1, paceInt32, paceSum, comm, nullptr) == paceInvalidArgument);
  CHECK(last_error_says("send buffer is NULL"));
  CHECK(paceAllReduce(&in, nullptr, 1, paceInt32, paceSum, comm, nullptr) == paceInvalidArgument);
  CHECK(paceAllReduce(&in, &out, 1, type_of(paceNumTypes), paceSum, comm, nullptr) == paceInvalidArgument);
  CHECK(last_error_says("data type 12"));
  CHECK(paceAllReduce(&in, &out, 1, paceInt32, op_of(bad_number), comm, nullptr) == paceInvalidArgument);
  CHECK(last_error_says("operation 99"));
  CHECK(paceBroadcast(&in, &out, 1, paceInt32, 1, comm, nullptr) == paceInvalidArgument);
  CHECK(last_error_says("root 1"));
  CHECK(paceBroadcast(&in, &out, 1, paceInt32, -1, comm, nullptr) == paceInvalidArgument);
  CHECK(paceSend(&in, 1, paceInt32, 1, comm, nullptr) == paceInvalidArgument);
  CHECK(last_error_says("peer 1"));
  CHECK(std::strcmp(paceGetLastError(comm), paceGetLastError(nullptr)) == 0);
  for (const std::size_t count : {SIZE_MAX, SIZE_MAX / 4, SIZE_MAX / 8, std::size_t{1} << 61, std::size_t{1} << 46}) {
    CHECK(paceAllReduce(&in, &out, count, paceInt32, paceSum, comm, nullptr) == paceInvalidArgument);
    CHECK(last_error_says("more than memory can hold"));
    CHECK(paceSend(&in, count, paceInt32, 0, comm, nullptr) == paceInvalidArgument);
    pacePlanInfo_t info;
    CHECK(paceExplain(comm, "all_to_all", count, paceInt32, paceSum, 0, &info) == paceInvalidArgument);
  }
  CHECK(out == 0);
  CHECK(paceAllReduce(nullptr, nullptr, 0, paceInt32, paceSum, comm, nullptr) == paceSuccess);
  CHECK(paceAllReduce(&in, &out, 1, paceInt32, paceSum, comm, nullptr) == paceSuccess);
  CHECK(out == 1);
}

TEST_CASE("a destroyed communicator is refused by name") {
  paceComm_t comm = nullptr;
  paceUniqueId id;
  REQUIRE(paceGetUniqueId(&id) == paceSuccess);
  REQUIRE(paceCommInitRank(&comm, 1, id, 0) == paceSuccess);
  REQUIRE(paceCommDestroy(comm) == paceSuccess);
  int value = 1;
  CHECK(paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, nullptr) == paceInvalidUsage);
  CHECK(last_error_says("destroyed"));
  CHECK(paceCommDestroy(comm) == paceInvalidUsage);
  CHECK(paceCommAbort(comm) == paceInvalidUsage);
  CHECK(paceCommCount(comm, &value) == paceInvalidUsage);
  CHECK(paceTraceStart(comm) == paceInvalidUsage);
  paceResult_t state;
  CHECK(paceCommGetAsyncError(comm, &state) == paceInvalidUsage);
  CHECK(paceGroupStart() == paceSuccess);
  CHECK(paceBarrier(comm, nullptr) == paceInvalidUsage);
  CHECK(paceGroupEnd() == paceInvalidUsage);
}

TEST_CASE("a communicator destroyed inside a group is refused at its end") {
  paceComm_t comm = nullptr;
  paceUniqueId id;
  REQUIRE(paceGetUniqueId(&id) == paceSuccess);
  REQUIRE(paceCommInitRank(&comm, 1, id, 0) == paceSuccess);
  CHECK(paceGroupStart() == paceSuccess);
  CHECK(paceBarrier(comm, nullptr) == paceSuccess);
  CHECK(paceCommDestroy(comm) == paceSuccess);
  CHECK(paceGroupEnd() == paceInvalidUsage);
}

TEST_CASE("why a group was not run is the last error of its communicators") {
  paceComm_t comm = nullptr;
  paceUniqueId id;
  REQUIRE(paceGetUniqueId(&id) == paceSuccess);
  REQUIRE(paceCommInitRank(&comm, 1, id, 0) == paceSuccess);
  float sent = 1;
  CHECK(paceGroupStart() == paceSuccess);
  CHECK(paceSend(&sent, 1, paceFloat32, 0, comm, nullptr) == paceSuccess);
  CHECK(paceGroupEnd() == paceMismatch);
  CHECK(std::string_view(paceGetLastError(comm)) == paceGetLastError(nullptr));
  CHECK(std::string_view(paceGetLastError(comm)) != "no error");
  CHECK(paceCommDestroy(comm) == paceSuccess);
}

TEST_CASE("what makes communicators checks its arguments") {
  paceComm_t comm = nullptr;
  paceUniqueId id;
  CHECK(paceGetUniqueId(nullptr) == paceInvalidArgument);
  REQUIRE(paceGetUniqueId(&id) == paceSuccess);
  CHECK(paceCommInitRank(nullptr, 1, id, 0) == paceInvalidArgument);
  CHECK(paceCommInitRank(&comm, 0, id, 0) == paceInvalidArgument);
  CHECK(paceCommInitRank(&comm, 2, id, 2) == paceInvalidArgument);
  CHECK(paceCommInitRank(&comm, 2, id, -1) == paceInvalidArgument);
  CHECK(paceCommInitRank(&comm, std::numeric_limits<int>::max(), id, 0) == paceInvalidArgument);
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  config.size = 0;
  CHECK(paceCommInitRankConfig(&comm, 1, id, 0, &config) == paceInvalidArgument);
  CHECK(last_error_says("PACE_CONFIG_INITIALIZER"));
  for (const double seconds : {-1.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    config = PACE_CONFIG_INITIALIZER;
    config.timeoutSeconds = seconds;
    CHECK(paceCommInitRankConfig(&comm, 1, id, 0, &config) == paceInvalidArgument);
    config = PACE_CONFIG_INITIALIZER;
    config.joinTimeoutSeconds = seconds;
    CHECK(paceCommInitRankConfig(&comm, 1, id, 0, &config) == paceInvalidArgument);
  }
  config = PACE_CONFIG_INITIALIZER;
  config.joinTimeoutSeconds = 0.05;
  REQUIRE(paceGetUniqueId(&id) == paceSuccess);
  CHECK(paceCommInitRankConfig(&comm, 2, id, 0, &config) == paceTimeout);
  CHECK(last_error_says("rank 1"));
  config = PACE_CONFIG_INITIALIZER;
  config.algorithm = "none";
  CHECK(paceCommInitRankConfig(&comm, 1, id, 0, &config) == paceInvalidArgument);
  CHECK(last_error_says("'none'"));
  paceUniqueId junk;
  std::memset(&junk, 0x5a, sizeof junk);
  CHECK(paceCommInitRank(&comm, 2, junk, 1) != paceSuccess);
  CHECK(comm == nullptr);
}

TEST_CASE("ranks that use no GPU have none that reach each other") {
  const Ranks communicator(1);
  int direct = 7;
  CHECK(paceCommGpuDirect(communicator[0], &direct) == paceSuccess);
  CHECK(direct == 0);
  std::uint64_t calls = 7;
  CHECK(paceCommGpuDirectCalls(communicator[0], &calls) == paceSuccess);
  CHECK(calls == 0);
  CHECK(paceCommGpuDirectCalls(communicator[0], nullptr) == paceInvalidArgument);
  CHECK(paceCommGpuDirectCalls(nullptr, &calls) == paceInvalidArgument);
}

TEST_CASE("on one machine no links are measured") {
  const Ranks communicator(1);
  int measured = 7;
  CHECK(paceCommLinksMeasured(communicator[0], &measured) == paceSuccess);
  CHECK(measured == 0);
}

TEST_CASE("questions check their result pointers") {
  const Ranks communicator(1);
  paceComm_t comm = communicator[0];
  CHECK(paceCommLinksMeasured(comm, nullptr) == paceInvalidArgument);
  CHECK(paceCommLinksMeasured(nullptr, nullptr) == paceInvalidArgument);
  CHECK(paceGetVersion(nullptr) == paceInvalidArgument);
  CHECK(paceCommCount(comm, nullptr) == paceInvalidArgument);
  CHECK(paceCommUserRank(comm, nullptr) == paceInvalidArgument);
  CHECK(std::strstr(paceGetLastError(comm), "result pointer") != nullptr);
  CHECK(paceCommNodeCount(nullptr, nullptr) == paceInvalidArgument);
  CHECK(paceCommGetAsyncError(comm, nullptr) == paceInvalidArgument);
  CHECK(paceCommSplit(comm, 0, 0, nullptr, nullptr) == paceInvalidArgument);
  paceRedOp_t op;
  int scalar = 1;
  CHECK(paceRedOpCreatePreMulSum(nullptr, &scalar, paceInt32, comm) == paceInvalidArgument);
  CHECK(paceRedOpCreatePreMulSum(&op, nullptr, paceInt32, comm) == paceInvalidArgument);
  CHECK(paceRedOpCreatePreMulSum(&op, &scalar, type_of(14), comm) == paceInvalidArgument);
  CHECK(paceRedOpDestroy(paceSum, comm) == paceInvalidArgument);
  CHECK(paceRedOpDestroy(op_of(bad_number), comm) == paceInvalidArgument);
}

TEST_CASE("an operator is for the type that it was made for") {
  const Ranks communicator(1);
  const float factor = 2;
  paceRedOp_t op;
  REQUIRE(paceRedOpCreatePreMulSum(&op, &factor, paceFloat32, communicator[0]) == paceSuccess);
  int value = 1;
  CHECK(paceAllReduce(&value, &value, 1, paceInt32, op, communicator[0], nullptr) == paceInvalidArgument);
  CHECK(last_error_says("float32"));
}

TEST_CASE("an operator is for the communicator that it was made for, until it is destroyed") {
  const Ranks communicator(1);
  const Ranks another(1);
  const float factor = 2;
  paceRedOp_t op;
  paceRedOp_t others;
  REQUIRE(paceRedOpCreatePreMulSum(&op, &factor, paceFloat32, communicator[0]) == paceSuccess);
  REQUIRE(paceRedOpCreatePreMulSum(&others, &factor, paceFloat32, another[0]) == paceSuccess);
  float value = 1;
  CHECK(paceAllReduce(&value, &value, 1, paceFloat32, op, another[0], nullptr) == paceInvalidArgument);
  CHECK(last_error_says("on this communicator"));
  CHECK(paceRedOpDestroy(op, another[0]) == paceInvalidArgument);
  REQUIRE(paceRedOpDestroy(op, communicator[0]) == paceSuccess);
  paceRedOp_t later;
  REQUIRE(paceRedOpCreatePreMulSum(&later, &factor, paceFloat32, communicator[0]) == paceSuccess);
  CHECK(paceAllReduce(&value, &value, 1, paceFloat32, op, communicator[0], nullptr) == paceInvalidArgument);
  CHECK(paceRedOpDestroy(op, communicator[0]) == paceInvalidArgument);
  CHECK(paceRedOpDestroy(later, communicator[0]) == paceSuccess);
  CHECK(paceRedOpDestroy(others, another[0]) == paceSuccess);
}

TEST_CASE("what is no host stream is refused") {
  const Ranks communicator(1);
  alignas(64) char not_a_stream[256] = {};
  int value = 1;
  CHECK(paceAllReduce(&value, &value, 1, paceInt32, paceSum, communicator[0], not_a_stream) == paceInvalidArgument);
  CHECK(last_error_says("paceHostStream_t"));
  auto* stream = reinterpret_cast<paceHostStream_t>(not_a_stream);
  CHECK(paceHostStreamSynchronize(stream) == paceInvalidArgument);
  CHECK(paceHostStreamQuery(stream) == paceInvalidArgument);
  CHECK(paceHostStreamDestroy(stream) == paceInvalidArgument);
  CHECK(paceHostStreamCreate(nullptr) == paceInvalidArgument);
  CHECK(paceHostStreamSynchronize(nullptr) == paceInvalidArgument);
  CHECK(paceHostStreamMark(stream, nullptr) == paceInvalidArgument);
  CHECK(paceHostStreamWait(nullptr, 0, 0) == paceInvalidArgument);
  CHECK(paceHostStreamResult(nullptr, 0) == paceInvalidArgument);
  CHECK(paceHostStreamDestroy(nullptr) == paceInvalidArgument);
}

TEST_CASE("a group's end needs its start") {
  CHECK(paceGroupEnd() == paceInvalidUsage);
  CHECK(last_error_says("paceGroupStart"));
  CHECK(paceGroupStart() == paceSuccess);
  CHECK(paceGroupEnd() == paceSuccess);
}

TEST_CASE("memory is given and taken back once") {
  void* memory = nullptr;
  CHECK(paceMemAlloc(nullptr, 1) == paceInvalidArgument);
  CHECK(paceMemAlloc(&memory, 0) == paceInvalidArgument);
  CHECK(paceMemAlloc(&memory, SIZE_MAX) == paceSystemError);
  CHECK(paceMemAlloc(&memory, std::size_t{1} << 60) == paceSystemError);
  REQUIRE(paceMemAlloc(&memory, 5000) == paceSuccess);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0);
  CHECK(static_cast<char*>(memory)[4999] == 0);
  CHECK(paceMemFree(static_cast<char*>(memory) + 1) == paceInvalidArgument);
  CHECK(paceMemFree(memory) == paceSuccess);
  CHECK(paceMemFree(memory) == paceInvalidArgument);
  CHECK(paceMemFree(nullptr) == paceSuccess);
}

TEST_CASE("every result has a name") {
  for (int code = 0; code <= paceUnsupported; ++code)
    CHECK(std::strcmp(paceGetErrorString(static_cast<paceResult_t>(code)), "unknown") != 0);
}

}  // namespace
}  // namespace paceline::testing
