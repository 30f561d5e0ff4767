#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "comm/threads.h"

namespace paceline::testing {
namespace {

TEST_CASE("ranks of one color form a communicator, ordered by key and then by old rank") {
  const Ranks communicator(5);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    // color 0: ranks 0, 2, 4 with keys 1, 1, 0; color 3: ranks 1 and 3 with keys 9 and 8
    const int color = rank % 2 == 0 ? 0 : 3;
    const int keys[] = {1, 9, 1, 8, 0};
    const int rank_there[] = {1, 1, 2, 0, 0};
    paceComm_t part = nullptr;
    PACE_EXPECT(paceCommSplit(comm, color, keys[rank], &part, nullptr));
    int number = -1;
    int count = -1;
    PACE_EXPECT(paceCommUserRank(part, &number));
    PACE_EXPECT(paceCommCount(part, &count));
    PACE_REQUIRE(number == rank_there[rank]);
    PACE_REQUIRE(count == (color == 0 ? 3 : 2));
    int sum = rank;
    PACE_EXPECT(paceAllReduce(&sum, &sum, 1, paceInt32, paceSum, part, nullptr));
    PACE_REQUIRE(sum == (color == 0 ? 6 : 4));

    // A split of the split, and the first communicator beside it.
    paceComm_t alone = nullptr;
    PACE_EXPECT(paceCommSplit(part, number, 0, &alone, nullptr));
    PACE_EXPECT(paceCommCount(alone, &count));
    PACE_REQUIRE(count == 1);
    PACE_EXPECT(paceAllReduce(&sum, &sum, 1, paceInt32, paceSum, alone, nullptr));
    PACE_EXPECT(paceAllReduce(&sum, &sum, 1, paceInt32, paceMax, comm, nullptr));
    PACE_REQUIRE(sum == 6);
    PACE_EXPECT(paceCommDestroy(alone));
    PACE_EXPECT(paceCommDestroy(part));
    return "";
  });
}

TEST_CASE("a negative color takes part without joining") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    paceComm_t part = comm;
    PACE_EXPECT(paceCommSplit(comm, rank == 1 ? PACE_SPLIT_NOCOLOR : 0, 0, &part, nullptr));
    PACE_REQUIRE((part == nullptr) == (rank == 1));
    if (part == nullptr) return "";
    int sum = rank;
    PACE_EXPECT(paceAllReduce(&sum, &sum, 1, paceInt32, paceSum, part, nullptr));
    PACE_REQUIRE(sum == 2);
    return expect(paceCommDestroy(part));
  });
}

TEST_CASE("a split is not taken for an all-gather of as many bytes") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    paceComm_t part = nullptr;
    std::uint64_t mine = 5;
    std::uint64_t all[2] = {};
    PACE_EXPECT(rank == 0 ? paceCommSplit(comm, 3, rank, &part, nullptr)
                          : paceAllGather(&mine, all, sizeof mine, paceUint8, comm, nullptr),
                paceMismatch);
    const std::string reason = paceGetLastError(comm);
    PACE_REQUIRE(reason.find("called split #") != std::string::npos);
    PACE_REQUIRE(reason.find("called all-gather #") != std::string::npos);
    return "";
  });
}

TEST_CASE("the end of a part is not the end of the whole") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    paceComm_t part = nullptr;
    PACE_EXPECT(paceCommSplit(comm, 0, rank, &part, nullptr));
    if (rank == 0) PACE_EXPECT(paceCommAbort(part));
    PACE_EXPECT(paceBarrier(part, nullptr), paceAborted);
    PACE_EXPECT(paceBarrier(comm, nullptr));
    return expect(paceCommDestroy(part));
  });
}

// Whether anybody here has a connection to the address that the id names and has not closed it yet.
bool any_connected(const paceUniqueId& id) {
  char port[8] = {};
  std::snprintf(port, sizeof port, ":%02X%02X", static_cast<unsigned char>(id.internal[9]),
                static_cast<unsigned char>(id.internal[8]));
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::string slot, local, remote, state;
    std::istringstream(line) >> slot >> local >> remote >> state;
    const bool open = state == "01" || state == "08";  // ESTABLISHED, CLOSE_WAIT
    if (open && remote.size() > 5 && remote.substr(remote.size() - 5) == port) return true;
  }
  return false;
}

// Ranks 1 and 2 of three have a communicator of their own; rank 0, to which the others' control connections go, has
// ended. function(rank of the two, communicator)
template <class Function>
void run_without_rank_0(Function function) {
  paceUniqueId id{};
  REQUIRE(paceGetUniqueId(&id) == paceSuccess);
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  config.timeoutSeconds = 60;
  on_every_rank(3, [&](int rank) -> std::string {
    paceComm_t whole{};
    paceComm_t part{};
    PACE_EXPECT(paceCommInitRankConfig(&whole, 3, id, rank, &config));
    PACE_REQUIRE(any_connected(id));
    PACE_EXPECT(paceCommSplit(whole, rank == 0 ? -1 : 1, rank, &part, &config));
    PACE_EXPECT(paceCommDestroy(whole));
    if (rank == 0) return "";
    // Rank 0 has ended when its last word has come, after which the others close their connections to it; a barrier of
    // the two says nothing about that.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (any_connected(id)) {
      PACE_REQUIRE(std::chrono::steady_clock::now() < until);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    PACE_EXPECT(paceBarrier(part, nullptr));
    std::string complaint = function(rank - 1, part);
    const paceResult_t left = paceCommDestroy(part);  // perhaps with word of a barrier that the other one called alone
    PACE_REQUIRE(left == paceSuccess || left == paceMismatch);
    return complaint;
  });
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A barrier that nobody else comes to ends long before the timeout, in an error that says so.
std::string barrier_ends(paceComm_t part, paceResult_t wanted, const char* said) {
  const auto begin = std::chrono::steady_clock::now();
  PACE_EXPECT(paceBarrier(part, nullptr), wanted);
  PACE_REQUIRE(std::string(paceGetLastError(part)).find(said) != std::string::npos);
  PACE_REQUIRE(seconds_since(begin) < 5);
  return "";
}

TEST_CASE("an abort reaches the others without rank 0") {
  run_without_rank_0([](int rank, paceComm_t part) {
    return rank == 0 ? expect(paceCommAbort(part)) : barrier_ends(part, paceAborted, "rank 0 aborted the communicator");
  });
}

TEST_CASE("who asks for the state learns of an abort without rank 0") {
  run_without_rank_0([](int rank, paceComm_t part) -> std::string {
    if (rank == 0) return expect(paceCommAbort(part));
    const auto begin = std::chrono::steady_clock::now();
    paceResult_t state = paceSuccess;
    while (state == paceSuccess && seconds_since(begin) < 5) PACE_EXPECT(paceCommGetAsyncError(part, &state));
    PACE_REQUIRE(state == paceAborted);
    return expect(paceBarrier(part, nullptr), paceAborted);
  });
}

TEST_CASE("a rank that left is named without rank 0") {
  run_without_rank_0([](int rank, paceComm_t part) {
    return rank == 0 ? std::string() : barrier_ends(part, paceRemoteError, "rank 0 left before barrier");
  });
}

TEST_CASE("many splits leave nothing behind that hinders the next") {
  const Ranks communicator(4);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    for (int i = 0; i < 20; ++i) {
      paceComm_t part = nullptr;
      PACE_EXPECT(paceCommSplit(comm, (rank + i) % 2, 0, &part, nullptr));
      int one = 1;
      PACE_EXPECT(paceAllReduce(&one, &one, 1, paceInt32, paceSum, part, nullptr));
      PACE_REQUIRE(one == 2);
      PACE_EXPECT(paceCommDestroy(part));
    }
    return "";
  });
}

}  // namespace
}  // namespace paceline::testing
