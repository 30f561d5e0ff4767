// The same calls over and over, with between them what must not leave anything of them that is not true any more.
#include "api/familiar_calls.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

#include "comm/threads.h"

namespace paceline::testing {
namespace {

constexpr int ranks = 3;
constexpr std::size_t least = 5;

// All-reduces of these buffers' first `count` numbers: on every call other ones, and a known sum.
std::string sum_of(std::vector<std::int32_t>& send, std::vector<std::int32_t>& recv, std::size_t count, int rank,
                   int call, paceComm_t comm) {
  for (std::size_t i = 0; i < count; ++i) send[i] = static_cast<std::int32_t>(i) + rank * call;
  std::ranges::fill(recv, -1);
  PACE_EXPECT(paceAllReduce(send.data(), recv.data(), count, paceInt32, paceSum, comm, nullptr));
  for (std::size_t i = 0; i < count; ++i)
    PACE_REQUIRE(recv[i] == ranks * static_cast<std::int32_t>(i) + call * ranks * (ranks - 1) / 2);
  return "";
}
#define PACE_SUMS(...)                                                  \
  do {                                                                  \
    if (auto wrong = sum_of(__VA_ARGS__); !wrong.empty()) return wrong; \
  } while (false)

TEST_CASE("a familiar call stays right when other calls need more memory, and when algorithms change") {
  const Ranks communicator(ranks);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    std::vector<std::int32_t> send(300000);
    std::vector<std::int32_t> recv(300000);
    int call = 0;
    for (const char* algorithm : {"", "ring", "recursive_doubling", "one_shot", "double_tree", "rabenseifner", ""}) {
      PACE_EXPECT(paceCommSetAlgorithm(comm, algorithm));
      for (const std::size_t longer : {std::size_t{6}, std::size_t{3000}, std::size_t{300000}}) {
        for (int again = 0; again < 3; ++again) PACE_SUMS(send, recv, least, rank, ++call, comm);
        PACE_SUMS(send, recv, longer, rank, ++call, comm);
      }
      PACE_SUMS(send, recv, least, rank, ++call, comm);
    }
    return "";
  });
}

TEST_CASE("a familiar call stays right when there are so many shapes that plans are dropped") {
  const Ranks communicator(ranks);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    std::vector<std::int32_t> send(3000);
    std::vector<std::int32_t> recv(3000);
    PACE_EXPECT(paceCommSetAlgorithm(comm, "ring chunk=64"));  // many steps a plan
    for (int call = 1; call < 3000; ++call) {
      PACE_SUMS(send, recv, least, rank, call, comm);
      const std::size_t other = 1000 + static_cast<std::size_t>(call) % 2000;
      std::ranges::fill(send, 1);
      PACE_EXPECT(paceAllReduce(send.data(), recv.data(), other, paceInt32, paceSum, comm, nullptr));
      PACE_REQUIRE(recv[other - 1] == ranks);
    }
    return "";
  });
}

// Round a ring, one by one or in a group, now in one length and now in another.
TEST_CASE("familiar messages stay right among groups of them, other lengths and dropped plans") {
  const Ranks communicator(ranks);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    std::vector<std::int32_t> send(3000);
    std::vector<std::int32_t> recv(3000);
    const int next = (rank + 1) % ranks;
    const int before = (rank + ranks - 1) % ranks;
    for (std::int32_t call = 0; call < 200; ++call) {
      const std::size_t count = call % 3 == 0 ? send.size() : least;
      const bool in_group = call % 5 == 0;
      if (call % 7 == 0) PACE_EXPECT(paceCommSetAlgorithm(comm, call % 2 == 0 ? "ring" : ""));
      std::ranges::fill(send, call * ranks + rank);
      const auto give = [&] { return paceSend(send.data(), count, paceInt32, next, comm, nullptr); };
      const auto take = [&] { return paceRecv(recv.data(), count, paceInt32, before, comm, nullptr); };
      if (in_group) PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(rank == 0 ? give() : take());
      PACE_EXPECT(rank == 0 ? take() : give());
      if (in_group) PACE_EXPECT(paceGroupEnd());
      PACE_REQUIRE(std::all_of(recv.begin(), recv.begin() + static_cast<std::ptrdiff_t>(count),
                               [&](std::int32_t one) { return one == call * ranks + before; }));
    }
    return "";
  });
}

TEST_CASE("what is wrong is wrong as a familiar call, too") {
  const Ranks communicator(ranks);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    std::vector<std::int32_t> send(least);
    std::vector<std::int32_t> recv(least);
    for (int call = 1; call < 4; ++call) {
      PACE_SUMS(send, recv, least, rank, call, comm);
      PACE_EXPECT(paceAllReduce(send.data(), nullptr, least, paceInt32, paceSum, comm, nullptr), paceInvalidArgument);
      PACE_EXPECT(paceBroadcast(send.data(), recv.data(), least, paceInt32, ranks, comm, nullptr), paceInvalidArgument);
    }
    // In a group it waits for the end, and fails with the group.
    std::ranges::fill(recv, -1);
    PACE_EXPECT(paceGroupStart());
    PACE_EXPECT(paceAllReduce(send.data(), recv.data(), least, paceInt32, paceSum, comm, nullptr));
    PACE_REQUIRE(recv[0] == -1);
    PACE_EXPECT(paceAllReduce(send.data(), nullptr, least, paceInt32, paceSum, comm, nullptr), paceInvalidArgument);
    PACE_EXPECT(paceGroupEnd(), paceInvalidArgument);
    PACE_REQUIRE(recv[0] == -1);
    PACE_SUMS(send, recv, least, rank, 4, comm);
    return "";
  });
}

TEST_CASE("an operator that was made anew is not the one before, and inputs that it scales are read each time") {
  const Ranks communicator(ranks);
  communicator.run([](int, paceComm_t comm) -> std::string {
    std::vector<float> send(least, 1);
    std::vector<float> recv(least);
    for (float factor = 2; factor < 6; ++factor) {
      paceRedOp_t op = paceSum;
      PACE_EXPECT(paceRedOpCreatePreMulSum(&op, &factor, paceFloat32, comm));
      for (int again = 0; again < 2; ++again) {
        PACE_EXPECT(paceAllReduce(send.data(), recv.data(), least, paceFloat32, op, comm, nullptr));
        PACE_REQUIRE(recv[least - 1] == ranks * factor);
      }
      PACE_EXPECT(paceRedOpDestroy(op, comm));
    }
    std::vector<std::int32_t> there(ranks);  // in place: moved before they are given
    for (std::int32_t call = 0; call < 4; ++call) {
      std::ranges::fill(there, call);
      PACE_EXPECT(paceAllToAll(there.data(), there.data(), 1, paceInt32, comm, nullptr));
      PACE_REQUIRE(std::ranges::all_of(there, [&](std::int32_t one) { return one == call; }));
    }
    return "";
  });
}

TEST_CASE("calls have places of their own, mostly") {
  api::FamiliarCalls calls;
  std::vector<std::byte> memory(1 << 16);
  std::set<const void*> places;
  for (int which = 0; which < 8; ++which)
    for (std::size_t count = 1; count < 4; ++count)
      places.insert(&calls.place(
          {static_cast<Collective>(which), memory.data(), memory.data() + 4096, count, paceFloat32, paceSum, 0}));
  CHECK(places.size() > 8);
}

}  // namespace
}  // namespace paceline::testing
