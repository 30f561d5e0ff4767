// send and recv, alone and in groups.
#include <doctest/doctest.h>

#include <barrier>
#include <chrono>
#include <latch>
#include <numeric>
#include <thread>

#include "comm/threads.h"

namespace paceline::testing {
namespace {

std::vector<int> numbers(std::size_t count, int first) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_CASE("a message goes round a ring of ranks") {
  const Ranks communicator(4);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    for (std::size_t count : {0U, 1U, 300U, 200000U}) {
      std::vector<int> data(count);
      if (rank == 0) {
        data = numbers(count, 5);
        PACE_EXPECT(paceSend(data.data(), count, paceInt32, 1, comm, nullptr));
        std::fill(data.begin(), data.end(), 0);
      }
      PACE_EXPECT(paceRecv(data.data(), count, paceInt32, (rank + 3) % 4, comm, nullptr));
      if (rank != 0) PACE_EXPECT(paceSend(data.data(), count, paceInt32, (rank + 1) % 4, comm, nullptr));
      PACE_REQUIRE(data == numbers(count, 5));
    }
    return "";
  });
}

TEST_CASE("in a group two ranks send to each other, and each to itself, whatever the order") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    constexpr std::size_t count = 100000;
    const auto mine = numbers(count, rank);
    std::vector<int> theirs(count);
    std::vector<int> own(count);
    for (bool receives_first : {false, true}) {
      PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(paceSend(mine.data(), count, paceInt32, rank, comm, nullptr));
      if (receives_first == (rank == 0))
        PACE_EXPECT(paceRecv(theirs.data(), count, paceInt32, 1 - rank, comm, nullptr));
      PACE_EXPECT(paceSend(mine.data(), count, paceInt32, 1 - rank, comm, nullptr));
      if (receives_first != (rank == 0))
        PACE_EXPECT(paceRecv(theirs.data(), count, paceInt32, 1 - rank, comm, nullptr));
      PACE_EXPECT(paceRecv(own.data(), count, paceInt32, rank, comm, nullptr));
      PACE_EXPECT(paceGroupEnd());
      PACE_REQUIRE(theirs == numbers(count, 1 - rank));
      PACE_REQUIRE(own == mine);
    }
    return "";
  });
}

TEST_CASE("several messages between two ranks in one group keep their order") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    const std::size_t counts[] = {70000, 3, 0, 40000, 1};
    std::vector<std::vector<int>> data;
    PACE_EXPECT(paceGroupStart());
    for (std::size_t i = 0; i < std::size(counts); ++i) {
      data.push_back(rank == 0 ? numbers(counts[i], static_cast<int>(i)) : std::vector<int>(counts[i]));
      PACE_EXPECT(rank == 0 ? paceSend(data[i].data(), counts[i], paceInt32, 1, comm, nullptr)
                            : paceRecv(data[i].data(), counts[i], paceInt32, 0, comm, nullptr));
    }
    PACE_EXPECT(paceGroupEnd());
    for (std::size_t i = 0; i < std::size(counts); ++i)
      PACE_REQUIRE(data[i] == numbers(counts[i], static_cast<int>(i)));
    return "";
  });
}

TEST_CASE("a message of a group does not wait for another one's receiver") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    constexpr std::size_t count = 1 << 20;
    std::vector<int> large = rank == 0 ? numbers(count, 7) : std::vector<int>(count);
    int token = rank;
    if (rank == 0) {
      PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(paceSend(large.data(), count, paceInt32, 2, comm, nullptr));
      PACE_EXPECT(paceSend(large.data(), count, paceInt32, 1, comm, nullptr));
      PACE_EXPECT(paceGroupEnd());
      return "";
    }
    // Rank 2 takes its message only after rank 1 has got the other.
    if (rank == 2) PACE_EXPECT(paceRecv(&token, 1, paceInt32, 1, comm, nullptr));
    PACE_EXPECT(paceRecv(large.data(), count, paceInt32, 0, comm, nullptr));
    if (rank == 1) PACE_EXPECT(paceSend(&token, 1, paceInt32, 2, comm, nullptr));
    PACE_REQUIRE(large == numbers(count, 7));
    PACE_REQUIRE(token == 1);
    return "";
  });
}

TEST_CASE("collectives of a group run after its messages, in order") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    int value = rank + 1;
    int message = 0;
    PACE_EXPECT(paceGroupStart());
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, nullptr));   // 6
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceProd, comm, nullptr));  // 216
    if (rank == 0) PACE_EXPECT(paceSend(&rank, 1, paceInt32, 1, comm, nullptr));
    if (rank == 1) PACE_EXPECT(paceRecv(&message, 1, paceInt32, 0, comm, nullptr));
    PACE_EXPECT(paceGroupEnd());
    PACE_REQUIRE(value == 216);
    return "";
  });
}

TEST_CASE("one thread drives all ranks of several communicators in one group") {
  const Ranks first(3);
  const Ranks second(2);
  std::vector<int> sums = {1, 2, 4, 10, 20};
  REQUIRE(paceGroupStart() == paceSuccess);
  REQUIRE(paceGroupStart() == paceSuccess);
  for (int rank = 2; rank >= 0; --rank)
    REQUIRE(paceAllReduce(&sums[static_cast<std::size_t>(rank)], &sums[static_cast<std::size_t>(rank)], 1, paceInt32,
                          paceSum, first[rank], nullptr) == paceSuccess);
  REQUIRE(paceGroupEnd() == paceSuccess);
  CHECK(sums[0] == 1);  // nothing begins before the outermost end
  for (int rank = 0; rank < 2; ++rank)
    REQUIRE(paceAllReduce(&sums[static_cast<std::size_t>(3 + rank)], &sums[static_cast<std::size_t>(3 + rank)], 1,
                          paceInt32, paceSum, second[rank], nullptr) == paceSuccess);
  REQUIRE(paceGroupEnd() == paceSuccess);
  CHECK(sums == std::vector<int>{7, 7, 7, 30, 30});
}

TEST_CASE("in a group no communicator's calls wait for another one's: others may make them one after another") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    paceComm_t twin = nullptr;
    PACE_EXPECT(paceCommSplit(comm, 0, 0, &twin, nullptr));
    for (const bool twin_first : {false, true}) {
      paceComm_t const first = twin_first ? twin : comm;
      paceComm_t const last = twin_first ? comm : twin;
      int values[] = {1, 2, 3};
      if (rank == 0) PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(paceAllReduce(&values[0], &values[0], 1, paceInt32, paceSum, first, nullptr));
      PACE_EXPECT(paceAllReduce(&values[1], &values[1], 1, paceInt32, paceSum, first, nullptr));
      PACE_EXPECT(paceAllReduce(&values[2], &values[2], 1, paceInt32, paceSum, last, nullptr));
      if (rank == 0) PACE_EXPECT(paceGroupEnd());
      PACE_REQUIRE((values[0] == 2 && values[1] == 4 && values[2] == 6));
    }
    return expect(paceCommDestroy(twin));
  });
}

TEST_CASE("a group that fails on one communicator ends the others whose part it leaves undone, and no more") {
  for (const bool undone : {true, false}) {
    const Ranks communicator(3);
    std::latch inside(2);
    std::latch failed(2);
    communicator.run([&](int rank, paceComm_t comm) -> std::string {
      paceComm_t part = nullptr;
      PACE_EXPECT(paceCommSplit(comm, rank < 2 ? 0 : 1, 0, &part, nullptr));
      std::vector<int> large(2000000);  // more than the slots hold
      int token = 5;
      if (rank == 0) {
        PACE_EXPECT(paceGroupStart());
        int never = 0;
        PACE_EXPECT(paceRecv(&never, 1, paceInt32, 2, comm, nullptr));
        PACE_EXPECT(paceSend(&token, 1, paceInt32, 1, part, nullptr));
        if (undone) PACE_EXPECT(paceSend(large.data(), large.size(), paceInt32, 1, part, nullptr));
        PACE_EXPECT(paceGroupEnd(), paceAborted);
        failed.count_down();
      } else if (rank == 1) {
        int got = 0;
        PACE_EXPECT(paceRecv(&got, 1, paceInt32, 0, part, nullptr));
        inside.arrive_and_wait();
        PACE_REQUIRE(got == 5);
        failed.arrive_and_wait();
      } else {
        inside.arrive_and_wait();
        PACE_EXPECT(paceCommAbort(comm));
        return expect(paceCommDestroy(part));
      }
      paceResult_t state = paceInProgress;
      if (!undone) {
        PACE_EXPECT(paceBarrier(part, nullptr));
        PACE_EXPECT(paceCommGetAsyncError(part, &state));
        PACE_REQUIRE(state == paceSuccess);
        return expect(paceCommDestroy(part));
      }
      PACE_EXPECT(rank == 0 ? paceSend(&token, 1, paceInt32, 1, part, nullptr)
                            : paceRecv(large.data(), large.size(), paceInt32, 0, part, nullptr),
                  paceRemoteError);
      const std::string reason = paceGetLastError(part);
      PACE_REQUIRE(reason.starts_with("rank 0 ("));
      PACE_REQUIRE(reason.find("broke off its group of calls") != std::string::npos);
      PACE_REQUIRE(reason.find("rank 2 aborted") != std::string::npos);
      return expect(paceCommDestroy(part));
    });
  }
}

TEST_CASE("a rank that does not come to one call of a group is named on the group's other communicators, too") {
  const Ranks communicator(4);
  std::latch over(3);
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    paceConfig_t impatient = PACE_CONFIG_INITIALIZER;
    impatient.timeoutSeconds = 0.5;
    paceComm_t odd = nullptr;
    PACE_EXPECT(paceCommSplit(comm, rank % 2, rank, &odd, &impatient));
    int value = 5;
    if (rank == 3) {
      over.wait();
      return expect(paceCommDestroy(odd));
    }
    PACE_EXPECT(paceGroupStart());
    if (rank == 1) PACE_EXPECT(paceBarrier(odd, nullptr));
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, nullptr));
    const paceResult_t ended = paceGroupEnd();
    over.count_down();
    PACE_EXPECT(ended, paceTimeout);
    int culprit = -1;
    PACE_EXPECT(paceGetLastErrorRank(comm, &culprit));
    PACE_REQUIRE(culprit == 3);
    const std::string reason = paceGetLastError(comm);
    PACE_REQUIRE(reason.starts_with("rank 3 ("));
    PACE_REQUIRE(reason.find("was late in rank 1's group of calls") != std::string::npos);
    return expect(paceCommDestroy(odd));
  });
}

TEST_CASE("in a row of ranks that wait for each other's message the one that sends none is named") {
  paceConfig_t impatient = PACE_CONFIG_INITIALIZER;
  impatient.timeoutSeconds = 0.5;
  const Ranks communicator(4, impatient);
  std::latch over(3);
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    if (rank == 3) {
      over.wait();
      return "";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * rank));  // rank 0 is the first to lose patience
    int value = 0;
    const paceResult_t ended = paceRecv(&value, 1, paceInt32, rank + 1, comm, nullptr);
    over.count_down();
    PACE_EXPECT(ended, paceTimeout);
    int culprit = -1;
    PACE_EXPECT(paceGetLastErrorRank(comm, &culprit));
    PACE_REQUIRE(culprit == 3);
    PACE_REQUIRE(std::string(paceGetLastError(comm)).find("rank 0 waited 0.5 s for rank 1, which in turn") !=
                 std::string::npos);
    return "";
  });
}

TEST_CASE("a group with a communicator that had ended before is broken off by the rank that made it") {
  const Ranks communicator(3);
  std::latch over(2);
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    paceConfig_t impatient = PACE_CONFIG_INITIALIZER;
    impatient.timeoutSeconds = 0.3;
    paceComm_t odd = nullptr;
    PACE_EXPECT(paceCommSplit(comm, rank % 2, rank, &odd, &impatient));
    if (rank == 0) PACE_EXPECT(paceBarrier(odd, nullptr), paceTimeout);
    if (rank != 1) over.arrive_and_wait();
    int value = 5;
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, nullptr));
    if (rank == 0) PACE_EXPECT(paceGroupStart());
    if (rank == 0) PACE_EXPECT(paceBarrier(odd, nullptr));
    const paceResult_t called = paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, nullptr);
    const paceResult_t ended = rank == 0 ? paceGroupEnd() : called;
    PACE_EXPECT(ended, rank == 0 ? paceTimeout : paceRemoteError);
    PACE_REQUIRE(std::string(paceGetLastError(comm)).starts_with("rank 0 ("));
    return expect(paceCommDestroy(odd));
  });
}

TEST_CASE("the end of a communicator whose part of a group is done is not the group's") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    static paceComm_t first_of_rank_0 = nullptr;
    static std::barrier together(3);
    for (int round = 0; round < 10; ++round) {
      paceComm_t with_1 = nullptr;
      paceComm_t with_2 = nullptr;
      PACE_EXPECT(paceCommSplit(comm, rank == 2 ? PACE_SPLIT_NOCOLOR : 0, rank, &with_1, nullptr));
      PACE_EXPECT(paceCommSplit(comm, rank == 1 ? PACE_SPLIT_NOCOLOR : 0, rank, &with_2, nullptr));
      if (rank == 0) first_of_rank_0 = with_1;
      together.arrive_and_wait();
      int token = 5;
      paceResult_t result = paceSuccess;
      if (rank == 0) {
        PACE_EXPECT(paceGroupStart());
        PACE_EXPECT(paceSend(&token, 1, paceInt32, 1, with_1, nullptr));
        PACE_EXPECT(paceBarrier(with_2, nullptr));
        result = paceGroupEnd();
      } else if (rank == 1) {
        PACE_EXPECT(paceRecv(&token, 1, paceInt32, 0, with_1, nullptr));
        PACE_EXPECT(paceCommAbort(with_1));
      } else {
        // Not before rank 0 knows.
        for (paceResult_t state = paceSuccess; state == paceSuccess;)
          PACE_EXPECT(paceCommGetAsyncError(first_of_rank_0, &state));
        result = paceBarrier(with_2, nullptr);
      }
      together.arrive_and_wait();
      PACE_EXPECT(result);
      for (paceComm_t part : {with_1, with_2})
        if (part != nullptr) PACE_EXPECT(paceCommDestroy(part));
    }
    return "";
  });
}

TEST_CASE("a group that fails in its messages ends the communicators of which it had collectives") {
  const Ranks communicator(3);
  std::latch failed(1);
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    paceComm_t part = nullptr;
    PACE_EXPECT(paceCommSplit(comm, rank < 2 ? 0 : 1, 0, &part, nullptr));
    int value = 5;
    if (rank == 2) {
      PACE_EXPECT(paceCommAbort(comm));
      return expect(paceCommDestroy(part));
    }
    if (rank == 0) {
      PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(paceRecv(&value, 1, paceInt32, 2, comm, nullptr));
      PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, part, nullptr));
      const paceResult_t ended = paceGroupEnd();
      failed.count_down();
      PACE_EXPECT(ended, paceAborted);
    }
    failed.wait();  // the all-reduce has begun with the receive, and could end before that fails
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, part, nullptr), paceRemoteError);
    const std::string reason = paceGetLastError(part);
    PACE_REQUIRE(reason.starts_with("rank 0 ("));
    PACE_REQUIRE(reason.find("broke off its group of calls") != std::string::npos);
    return expect(paceCommDestroy(part));
  });
}

TEST_CASE("a group with one bad call starts nothing") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    int value = rank;
    PACE_EXPECT(paceGroupStart());
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, nullptr));
    PACE_EXPECT(paceBroadcast(&value, &value, 1, paceInt32, 7, comm, nullptr), paceInvalidArgument);
    PACE_EXPECT(paceGroupEnd(), paceInvalidArgument);
    PACE_REQUIRE(value == rank);
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, nullptr));  // and the next one is whole
    PACE_REQUIRE(value == 1);
    return "";
  });
}

TEST_CASE("a group with a call whose stream is none starts nothing") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    alignas(64) static char none[4096] = {};
    int value = rank;
    PACE_EXPECT(paceGroupStart());
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, nullptr));
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, none), paceInvalidArgument);
    PACE_EXPECT(paceGroupEnd(), paceInvalidArgument);
    PACE_REQUIRE(value == rank);
    return "";
  });
}

TEST_CASE("a group whose messages to itself do not match starts nothing") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    int sent = rank + 5;
    int got = -1;
    PACE_EXPECT(paceSend(&sent, 1, paceInt32, rank, comm, nullptr), paceMismatch);
    if (rank == 0) {
      PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(paceSend(&sent, 1, paceInt32, 1, comm, nullptr));
      PACE_EXPECT(paceRecv(&got, 1, paceInt32, 0, comm, nullptr));
      PACE_EXPECT(paceGroupEnd(), paceMismatch);
      PACE_EXPECT(paceSend(&sent, 1, paceInt32, 1, comm, nullptr));
      return "";
    }
    PACE_EXPECT(paceRecv(&got, 1, paceInt32, 0, comm, nullptr));
    PACE_REQUIRE(got == 5);
    return "";
  });
}

}  // namespace
}  // namespace paceline::testing
