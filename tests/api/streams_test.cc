// Calls on host streams, through the C API.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "comm/threads.h"
#include "transport/child.h"

namespace paceline::testing {
namespace {

// Run the body on every rank, with two streams of its own.
template <class Body>
void run_with_two_streams(const Ranks& communicator, const Body& body) {
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    paceHostStream_t streams[2] = {};
    for (auto& stream : streams) PACE_EXPECT(paceHostStreamCreate(&stream));
    const std::string wrong = body(rank, comm, streams);
    for (auto& stream : streams) PACE_EXPECT(paceHostStreamDestroy(stream));
    return wrong;
  });
}

TEST_CASE("calls of a stream run in order, and a blocking call comes after them") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    paceHostStream_t stream = nullptr;
    PACE_EXPECT(paceHostStreamCreate(&stream));
    std::vector<int> values(50000, rank == 0 ? 1 : 0);
    for (int i = 0; i < 5; ++i)  // 1, 3, 9, 27, 81: times three from the second on
      PACE_EXPECT(paceAllReduce(values.data(), values.data(), values.size(), paceInt32, paceSum, comm, stream));
    PACE_EXPECT(paceAllReduce(values.data(), values.data(), 1, paceInt32, paceMax, comm, nullptr));
    PACE_REQUIRE(values.front() == 81);
    PACE_REQUIRE(values.back() == 81);
    PACE_EXPECT(paceHostStreamSynchronize(stream));
    PACE_EXPECT(paceHostStreamQuery(stream));
    return expect(paceHostStreamDestroy(stream));
  });
}

TEST_CASE("a group on a stream starts together") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    paceHostStream_t stream = nullptr;
    PACE_EXPECT(paceHostStreamCreate(&stream));
    std::vector<int> mine(30000, rank);
    std::vector<int> theirs(30000, -1);
    PACE_EXPECT(paceGroupStart());
    PACE_EXPECT(paceSend(mine.data(), mine.size(), paceInt32, 1 - rank, comm, stream));
    PACE_EXPECT(paceRecv(theirs.data(), theirs.size(), paceInt32, 1 - rank, comm, stream));
    PACE_EXPECT(paceGroupEnd());
    std::uint64_t mark = 0;
    PACE_EXPECT(paceHostStreamMark(stream, &mark));
    PACE_REQUIRE(mark == 1);
    PACE_EXPECT(paceHostStreamWait(stream, mark, -1));
    PACE_REQUIRE(theirs == std::vector<int>(30000, 1 - rank));
    return expect(paceHostStreamDestroy(stream));
  });
}

TEST_CASE("an error on a stream comes at synchronize, once") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    paceHostStream_t stream = nullptr;
    PACE_EXPECT(paceHostStreamCreate(&stream));
    int value = 1;
    PACE_EXPECT(paceAllReduce(&value, &value, 1, paceInt32, rank == 0 ? paceSum : paceMax, comm, stream));
    PACE_EXPECT(paceHostStreamSynchronize(stream), paceMismatch);
    PACE_REQUIRE(std::string(paceGetLastError(comm)).find("rank") != std::string::npos);
    PACE_EXPECT(paceHostStreamSynchronize(stream));
    return expect(paceHostStreamDestroy(stream));
  });
}

TEST_CASE("a destroyed host stream is an error by name") {
  const Ranks alone(1);
  for (int made = 0; made < 200; ++made) {  // more than one block of handles
    paceHostStream_t stream = nullptr;
    REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
    int value = 1;
    REQUIRE(paceAllReduce(&value, &value, 1, paceInt32, paceSum, alone[0], stream) == paceSuccess);
    REQUIRE(paceHostStreamDestroy(stream) == paceSuccess);
    CHECK(paceAllReduce(&value, &value, 1, paceInt32, paceSum, alone[0], stream) == paceInvalidUsage);
    CHECK(paceHostStreamSynchronize(stream) == paceInvalidUsage);
    CHECK(paceHostStreamDestroy(stream) == paceInvalidUsage);
    CHECK(std::string(paceGetLastError(nullptr)) == "the host stream has been destroyed");
  }
}

TEST_CASE("a stream may be destroyed while other threads wait for it, or begin to") {
  const Ranks alone(1);
  for (int i = 0; i < 300; ++i) {
    paceHostStream_t stream = nullptr;
    REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
    REQUIRE(paceBarrier(alone[0], stream) == paceSuccess);
    std::latch waiting(2);
    std::vector<std::thread> threads(2);
    for (std::thread& thread : threads)
      thread = std::thread([&] {
        waiting.count_down();
        paceResult_t waited = paceSuccess;
        while (waited == paceSuccess) waited = paceHostStreamWait(stream, 1, -1);
        CHECK(waited == paceInvalidUsage);  // it has been destroyed
      });
    waiting.wait();
    CHECK(paceHostStreamDestroy(stream) == paceSuccess);
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("what is no host stream is not read") {
  const Ranks alone(1);
  void* const unreadable = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(unreadable != MAP_FAILED);
  auto* const none = static_cast<paceHostStream_t>(unreadable);
  int value = 1;
  CHECK(paceAllReduce(&value, &value, 1, paceInt32, paceSum, alone[0], none) == paceInvalidArgument);
  CHECK(std::string(paceGetLastError(nullptr)).find("`stream` is not a paceHostStream_t") == 0);
  CHECK(paceHostStreamDestroy(none) == paceInvalidArgument);
  ::munmap(unreadable, 4096);
}

TEST_CASE("destroying a communicator waits for its calls on streams") {
  for (int again = 0; again < 20; ++again) {
    const Ranks communicator(2);
    communicator.run([](int, paceComm_t comm) -> std::string {
      paceHostStream_t stream = nullptr;
      PACE_EXPECT(paceHostStreamCreate(&stream));
      std::vector<int> values(20000, 1);
      PACE_EXPECT(paceAllReduce(values.data(), values.data(), values.size(), paceInt32, paceSum, comm, stream));
      PACE_EXPECT(paceCommDestroy(comm));
      PACE_REQUIRE(values == std::vector<int>(20000, 2));
      PACE_EXPECT(paceHostStreamSynchronize(stream));
      return expect(paceHostStreamDestroy(stream));
    });
  }
}

TEST_CASE("a forked child may destroy streams and communicators, also with calls under way") {
  const Ranks communicator(2);
  paceHostStream_t stream = nullptr;
  REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
  std::vector<int> first(20000, 1);
  std::vector<int> second(20000, 2);
  const auto add = [&](int rank, std::vector<int>& values, paceHostStream_t on) {
    return paceAllReduce(values.data(), values.data(), values.size(), paceInt32, paceSum, communicator[rank], on);
  };
  for (const bool under_way : {false, true}) {
    if (under_way) REQUIRE(add(0, first, stream) == paceSuccess);  // rank 1 comes after the child's end
    Child child([&] {
      return paceHostStreamSynchronize(stream) == paceInvalidUsage && paceCommDestroy(communicator[0]) == paceSuccess &&
             paceCommDestroy(communicator[1]) == paceSuccess && paceHostStreamDestroy(stream) == paceSuccess;
    });
    CHECK(child.ended_well());
  }
  CHECK(add(1, second, nullptr) == paceSuccess);
  CHECK(paceHostStreamSynchronize(stream) == paceSuccess);
  CHECK(first == std::vector<int>(20000, 3));
  CHECK(second == first);
  CHECK(paceHostStreamDestroy(stream) == paceSuccess);
}

TEST_CASE("a forked child cannot make calls on its parent's communicators, which go on") {
  const Ranks communicator(2);
  std::vector<int> values(10, 1);
  const auto sum = [&](int rank, int* value) {
    return paceAllReduce(value, value, 1, paceInt32, paceSum, communicator[rank], nullptr);
  };
  const auto both = [&](int expected) {
    on_every_rank(2, [&](int rank) -> std::string {
      int value = 1 + rank;
      PACE_EXPECT(sum(rank, &value));
      PACE_REQUIRE(value == expected);
      return "";
    });
  };
  both(3);
  Child child([&] {
    int value = 9;  // the same call as before, which the parent knows
    int size = 0;
    return sum(0, &value) == paceInvalidUsage && value == 9 && paceCommCount(communicator[0], &size) == paceSuccess &&
           size == 2 && paceCommAbort(communicator[0]) == paceInvalidUsage;
  });
  CHECK(child.ended_well());
  both(3);
}

TEST_CASE("calls of one communicator keep their order on two streams") {
  const Ranks communicator(2);
  const Ranks gate(2);
  std::latch all_queued(3);
  std::jthread late([&] {
    all_queued.arrive_and_wait();
    int word = 7;
    (void)paceSend(&word, 1, paceInt32, 0, gate[1], nullptr);
  });
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    paceHostStream_t streams[2] = {};
    for (auto& stream : streams) PACE_EXPECT(paceHostStreamCreate(&stream));
    int word = 0;
    // Rank 0's first stream is held up until everything has been queued.
    if (rank == 0) PACE_EXPECT(paceRecv(&word, 1, paceInt32, 1, gate[0], streams[0]));
    int values[3] = {1, 10, 100};
    for (int i = 0; i < 3; ++i)
      PACE_EXPECT(paceAllReduce(&values[i], &values[i], 1, paceInt32, paceSum, comm, streams[i % 2]));
    all_queued.arrive_and_wait();
    for (auto& stream : streams) PACE_EXPECT(paceHostStreamDestroy(stream));
    PACE_REQUIRE(values[0] == 2);
    PACE_REQUIRE(values[1] == 20);
    PACE_REQUIRE(values[2] == 200);
    return "";
  });
}

TEST_CASE("a group's calls of one communicator keep their order, whichever streams each rank has them on") {
  const Ranks communicator(2);
  run_with_two_streams(communicator, [](int rank, paceComm_t comm, const paceHostStream_t* streams) -> std::string {
    const paceHostStream_t one = streams[0];
    const paceHostStream_t two = streams[1];
    const std::vector<std::vector<paceHostStream_t>> turns[] = {{{one, two, one}, {one, one, one}},
                                                                {{nullptr, one, one}, {one, one, one}},
                                                                {{two, nullptr, one}, {nullptr, nullptr, nullptr}},
                                                                {{one, two, nullptr}, {two, two, one}}};
    for (const auto& of_ranks : turns) {
      const auto& mine = of_ranks[static_cast<std::size_t>(rank)];
      int values[3] = {1, 10, 100};
      PACE_EXPECT(paceGroupStart());
      for (std::size_t i = 0; i < 3; ++i)
        PACE_EXPECT(paceAllReduce(&values[i], &values[i], 1, paceInt32, paceSum, comm, mine[i]));
      PACE_EXPECT(paceGroupEnd());
      for (int i = 0; i < 2; ++i) PACE_EXPECT(paceHostStreamSynchronize(streams[i]));
      PACE_REQUIRE(values[0] == 2);
      PACE_REQUIRE(values[1] == 20);
      PACE_REQUIRE(values[2] == 200);
    }
    return "";
  });
}

TEST_CASE("a group's messages on several streams start together") {
  const Ranks communicator(2);
  run_with_two_streams(communicator, [](int rank, paceComm_t comm, const paceHostStream_t* streams) -> std::string {
    const std::vector<int> mine(1 << 20, rank);
    for (const paceHostStream_t receiving : {streams[1], paceHostStream_t{nullptr}}) {
      std::vector<int> theirs(mine.size(), -1);
      PACE_EXPECT(paceGroupStart());
      PACE_EXPECT(paceSend(mine.data(), mine.size(), paceInt32, 1 - rank, comm, streams[0]));
      PACE_EXPECT(paceRecv(theirs.data(), theirs.size(), paceInt32, 1 - rank, comm, receiving));
      PACE_EXPECT(paceGroupEnd());
      if (receiving != nullptr) PACE_EXPECT(paceHostStreamSynchronize(receiving));
      PACE_REQUIRE(theirs == std::vector<int>(mine.size(), 1 - rank));
    }
    return "";
  });
}

TEST_CASE("an error of a group comes on each of its streams") {
  const Ranks communicator(2);
  run_with_two_streams(communicator, [](int rank, paceComm_t comm, const paceHostStream_t* streams) -> std::string {
    int values[2] = {1, 2};
    PACE_EXPECT(paceGroupStart());
    for (int i = 0; i < 2; ++i)
      PACE_EXPECT(paceAllReduce(&values[i], &values[i], 1, paceInt32, rank == 0 ? paceSum : paceMax, comm, streams[i]));
    PACE_EXPECT(paceGroupEnd());
    for (int i = 0; i < 2; ++i) PACE_EXPECT(paceHostStreamSynchronize(streams[i]), paceMismatch);
    return "";
  });
}

TEST_CASE("a stream stays until the group that has calls for it has ended") {
  const Ranks communicator(1);
  paceHostStream_t stream{};
  REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
  int value = 5;
  int copy = 0;
  CHECK(paceGroupStart() == paceSuccess);
  CHECK(paceAllReduce(&value, &copy, 1, paceInt32, paceSum, communicator[0], stream) == paceSuccess);
  CHECK(paceHostStreamDestroy(stream) == paceInvalidUsage);
  CHECK(paceGroupEnd() == paceSuccess);
  CHECK(paceHostStreamSynchronize(stream) == paceSuccess);
  CHECK(copy == 5);
  CHECK(paceHostStreamDestroy(stream) == paceSuccess);
}

TEST_CASE("nobody waits for calls that a stream never got") {
  paceHostStream_t stream = nullptr;
  REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
  CHECK(paceHostStreamWait(stream, 1, -1) == paceInvalidArgument);
  CHECK(paceHostStreamWait(stream, 0, -1) == paceSuccess);
  CHECK(paceHostStreamDestroy(stream) == paceSuccess);
}

// Sanitizers let a child of several threads have none of its own, or hang; and an id brings one with it.
paceResult_t make_alone(paceComm_t* comm) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return paceCommInitEnvironment(comm, nullptr);
#else
  paceUniqueId id{};
  const paceResult_t made = paceGetUniqueId(&id);
  return made == paceSuccess ? paceCommInitRank(comm, 1, id, 0) : made;
#endif
}

TEST_CASE("a forked child cannot make calls on its parent's streams") {
  paceHostStream_t stream = nullptr;
  REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
  Child child([&] {
    paceComm_t comm = nullptr;
    if (make_alone(&comm) != paceSuccess) return false;
    int value = 1;
    int sum = 0;
    return paceAllReduce(&value, &sum, 1, paceInt32, paceSum, comm, stream) == paceInvalidUsage &&
           paceAllReduce(&value, &sum, 1, paceInt32, paceSum, comm, nullptr) == paceSuccess && sum == 1 &&
           paceCommDestroy(comm) == paceSuccess;
  });
  CHECK(child.ended_well());
  CHECK(paceHostStreamDestroy(stream) == paceSuccess);
}

TEST_CASE("a forked child can allocate and make communicators, whatever other threads do meanwhile") {
#ifdef __SANITIZE_ADDRESS__
  return;  // its allocator's own locks may be taken in the child for ever
#endif
  std::atomic<bool> enough = false;
  std::jthread allocates([&] {
    while (!enough) {
      void* memory = nullptr;
      if (paceMemAlloc(&memory, 8 << 20) == paceSuccess) (void)paceMemFree(memory);
    }
  });
  const auto make_and_destroy = [] {
    paceComm_t comm = nullptr;
    return make_alone(&comm) == paceSuccess && paceCommDestroy(comm) == paceSuccess;
  };
  REQUIRE(make_and_destroy());  // so that no static object is in the making when this process forks
  std::jthread makes([&] {
    for (int i = 0; i < 1000 && !enough; ++i) (void)make_and_destroy();  // handles stay, so not without end
  });
  for (int i = 0; i < 20; ++i) {
    Child child([&] {
      void* memory = nullptr;
      return paceMemAlloc(&memory, 4096) == paceSuccess && paceMemFree(memory) == paceSuccess && make_and_destroy();
    });
    CHECK(child.ended_well());
  }
  enough = true;
}

}  // namespace
}  // namespace paceline::testing
