#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <latch>
#include <string>
#include <vector>

#include "bootstrap/made_elsewhere.h"
#include "bootstrap/ranks.h"
#include "comm/threads.h"

namespace paceline::testing {
namespace {

constexpr double join_timeout = 20;

paceConfig_t patience(double join_seconds = join_timeout) {
  paceConfig_t config = PACE_CONFIG_INITIALIZER;
  config.timeoutSeconds = 60;
  config.joinTimeoutSeconds = join_seconds;
  return config;
}

// The ranks of `comm` but the excluded ones go on; the new communicator works, and has this one's rank and size.
std::string shrink(paceComm_t comm, const std::vector<int>& excluded, int rank, int size, paceComm_t* made) {
  const paceConfig_t config = patience();
  PACE_EXPECT(paceCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), made, &config));
  int number = -1, count = -1;
  PACE_EXPECT(paceCommUserRank(*made, &number));
  PACE_EXPECT(paceCommCount(*made, &count));
  PACE_REQUIRE(number == rank);
  PACE_REQUIRE(count == size);
  std::vector<int> sums(100000, rank + 1);
  PACE_EXPECT(paceAllReduce(sums.data(), sums.data(), sums.size(), paceInt32, paceSum, *made, nullptr));
  for (const int sum : sums) PACE_REQUIRE(sum == size * (size + 1) / 2);
  return "";
}

std::string shrink(paceComm_t comm, const std::vector<int>& excluded, int rank, int size) {
  paceComm_t made = nullptr;
  std::string complaint = shrink(comm, excluded, rank, size, &made);
  return complaint.empty() ? expect(paceCommDestroy(made)) : complaint;
}

TEST_CASE("the ranks that are not excluded go on, in their order, beside the communicator that they come from") {
  const Ranks communicator(5);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    if (rank == 0 || rank == 3) return expect(paceBarrier(comm, nullptr));
    const int number[] = {-1, 0, 1, -1, 2};
    paceComm_t made = nullptr;
    if (auto complaint = shrink(comm, {3, 0}, number[rank], 3, &made); !complaint.empty()) return complaint;
    if (rank != 2)  // of what is shrunk, and of what is split
      if (auto complaint = shrink(made, {1}, rank == 1 ? 0 : 1, 2); !complaint.empty()) return complaint;
    paceComm_t part = nullptr;
    PACE_EXPECT(paceCommSplit(made, 0, -rank, &part, nullptr));
    if (rank != 4)
      if (auto complaint = shrink(part, {0}, rank == 2 ? 0 : 1, 2); !complaint.empty()) return complaint;
    PACE_EXPECT(paceCommDestroy(part));
    PACE_EXPECT(paceCommDestroy(made));
    return expect(paceBarrier(comm, nullptr));
  });
}

TEST_CASE("of a communicator that has ended as of one that works, of all of its ranks or of one") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    for (const bool aborted : {false, true}) {
      if (aborted && rank == 1) PACE_EXPECT(paceCommAbort(comm));
      if (aborted) PACE_EXPECT(paceBarrier(comm, nullptr), paceAborted);
      for (int i = 0; i < 3; ++i)  // the first takes the listener that was there; the others listen anew
        if (auto complaint = shrink(comm, {}, rank, 3); !complaint.empty()) return complaint;
      if (auto complaint = shrink(comm, {(rank + 1) % 3, (rank + 2) % 3}, 0, 1); !complaint.empty()) return complaint;
    }
    return "";
  });
}

TEST_CASE("bad arguments of a shrink, each by name") {
  const Ranks communicator(2);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    const int all[] = {0, 1, 2, -1};
    const int& other = all[1 - rank];
    const int& self = all[rank];
    paceComm_t made = nullptr;
    const auto complains = [&](const int* excluded, int count, const std::string& said) -> std::string {
      PACE_EXPECT(paceCommShrink(comm, excluded, count, &made, nullptr), paceInvalidArgument);
      PACE_REQUIRE(made == nullptr);
      return paceGetLastError(comm) == said ? "" : std::string("said: ") + paceGetLastError(comm);
    };
    const std::string own = std::to_string(rank);
    for (const std::string& complaint :
         {complains(nullptr, 1, "excluded is NULL"), complains(all, -1, "count is -1: give 0 or more"),
          complains(&self, 1, "rank " + own + " is among the excluded ranks, which do not call it"),
          complains(all + 2, 1, "excluded rank 2 is none of 2 ranks"),
          complains(all + 3, 1, "excluded rank -1 is none of 2 ranks")})
      if (!complaint.empty()) return complaint;
    PACE_EXPECT(paceCommShrink(comm, &other, 1, nullptr, nullptr), paceInvalidArgument);
    paceConfig_t config = patience(-1);
    PACE_EXPECT(paceCommShrink(comm, &other, 1, &made, &config), paceInvalidArgument);
    return expect(paceBarrier(comm, nullptr));
  });
}

TEST_CASE("who does not come to a shrink is named as the old communicator numbers it, and it can be tried again") {
  const Ranks communicator(4);
  std::latch failed(2);
  communicator.run([&](int rank, paceComm_t comm) -> std::string {
    if (rank == 0) return expect(paceBarrier(comm, nullptr));
    paceComm_t made = nullptr;
    const int excluded[] = {0};
    const paceConfig_t config = patience(2);
    if (rank == 3) {  // the new rank 2
      failed.wait();
    } else {
      const paceResult_t result = paceCommShrink(comm, excluded, 1, &made, &config);
      failed.count_down();
      PACE_EXPECT(result, paceTimeout);
      int late = -1;
      PACE_EXPECT(paceGetLastErrorRank(comm, &late));
      PACE_REQUIRE(late == 3);
      PACE_REQUIRE(std::string(paceGetLastError(comm)) ==
                   "going on with ranks 1 to 3, from now on numbered from 0: rank 2 did not come to the rendezvous "
                   "within 2 s");
    }
    if (auto complaint = shrink(comm, {0}, rank - 1, 3); !complaint.empty()) return complaint;
    return expect(paceBarrier(comm, nullptr));
  });
}

TEST_CASE("ranks that do not exclude the same ranks do not meet, and learn why") {
  const Ranks communicator(3);
  communicator.run([](int rank, paceComm_t comm) -> std::string {
    if (rank == 2) return "";
    const int others[] = {2};
    paceComm_t made = nullptr;
    const paceConfig_t config = patience(60);
    const auto begin = Clock::now();
    PACE_EXPECT(paceCommShrink(comm, others, rank, &made, &config), paceInvalidUsage);
    const std::string said = paceGetLastError(comm);
    PACE_REQUIRE(said.find("some rank does not exclude the same ones: all that go on must") != std::string::npos);
    PACE_REQUIRE(Clock::now() - begin < 30s);
    return "";
  });
}

// Ranks in processes of their own, made as a program makes them. function(rank, communicator, say)
class ProcessRanks {
 public:
  template <class Function>
  ProcessRanks(int ranks, Function function) {
    paceUniqueId id;
    std::memcpy(&id, made_.id().data(), sizeof id);
    for (int rank = 0; rank < ranks; ++rank)
      children_.emplace_back([=](const Child::Say& say) {
        const paceConfig_t config = patience();
        paceComm_t comm = nullptr;
        const auto complaint = expect(paceCommInitRankConfig(&comm, ranks, id, rank, &config));
        if (!complaint.empty()) return say(complaint);
        function(rank, comm, say);
      });
  }
  Child& operator[](int rank) { return children_[static_cast<std::size_t>(rank)]; }

 private:
  MadeElsewhere made_;
  std::deque<Child> children_;
};

TEST_CASE("the survivors of a death go on without the dead rank, the job's first one too") {
  for (const int victim : {0, 2}) {
    ProcessRanks ranks(4, [=](int rank, paceComm_t comm, const Child::Say& say) {
      say(expect(paceBarrier(comm, nullptr)));
      if (rank == victim) ::pause();
      say(paceGetErrorString(paceBarrier(comm, nullptr)));
      say(shrink(comm, {victim}, rank - (rank > victim ? 1 : 0), 3));
      ::pause();
    });
    for (int rank = 0; rank < 4; ++rank) REQUIRE(ranks[rank].line() == "");
    ranks[victim].kill(SIGKILL);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      CHECK(ranks[rank].line() == paceGetErrorString(paceRemoteError));
      CHECK(ranks[rank].line() == "");
    }
  }
}

TEST_CASE("a rank that dies while the others wait for it in a shrink is named at once, and they go on without it") {
  ProcessRanks ranks(4, [=](int rank, paceComm_t comm, const Child::Say& say) {
    say(expect(paceBarrier(comm, nullptr)));
    if (rank == 1 || rank == 3) ::pause();
    say(paceGetErrorString(paceBarrier(comm, nullptr)));
    const int excluded[] = {3};
    paceComm_t made = nullptr;
    const paceConfig_t config = patience(60);
    say(paceGetErrorString(paceCommShrink(comm, excluded, 1, &made, &config)));
    const std::string said = paceGetLastError(comm);
    const std::string begin = "going on with ranks 0 to 2, from now on numbered from 0: rank 1 (";
    say(said.starts_with(begin) && said.find("died") != said.npos ? "" : said);
    say(shrink(comm, {1, 3}, rank / 2, 2));
    ::pause();
  });
  for (int rank = 0; rank < 4; ++rank) REQUIRE(ranks[rank].line() == "");
  const auto begin = Clock::now();
  ranks[3].kill(SIGKILL);
  for (const int rank : {0, 2}) CHECK(ranks[rank].line() == paceGetErrorString(paceRemoteError));
  ranks[1].kill(SIGKILL);
  for (const int rank : {0, 2}) {
    CHECK(ranks[rank].line() == paceGetErrorString(paceRemoteError));
    CHECK(ranks[rank].line() == "");
    CHECK(ranks[rank].line() == "");
  }
  CHECK(Clock::now() - begin < 20s);
}

TEST_CASE("an abort ends a shrink in which a rank has stopped, wherever that is") {
  int aborts = 0;
  for (const auto moment : {0ms, 2ms, 4ms, 6ms, 8ms, 10ms, 13ms, 16ms, 20ms}) {
    ProcessRanks ranks(3, [=](int rank, paceComm_t comm, const Child::Say& say) {
      say(expect(paceBarrier(comm, nullptr)));
      std::thread patience_ends([=] {
        std::this_thread::sleep_for(500ms);
        if (rank == 0) (void)paceCommAbort(comm);
      });
      paceComm_t made = nullptr;
      const paceConfig_t config = patience(60);
      say(paceGetErrorString(paceCommShrink(comm, nullptr, 0, &made, &config)));
      patience_ends.join();
      ::pause();
    });
    const auto begin = Clock::now();
    for (int rank = 0; rank < 3; ++rank) REQUIRE(ranks[rank].line() == "");
    std::this_thread::sleep_for(moment);
    ranks[1].kill(SIGSTOP);
    const std::string first = ranks[0].line();
    CHECK(ranks[2].line() == first);
    CHECK((first == paceGetErrorString(paceSuccess) || first == paceGetErrorString(paceAborted)));
    aborts += first == paceGetErrorString(paceAborted) ? 1 : 0;
    CHECK(Clock::now() - begin < 20s);
  }
  CHECK(aborts > 0);
}

// Without those that have died, one after another as errors tell of them.
std::string go_on_without_the_dead(paceComm_t comm, std::vector<int> dead, paceComm_t* made) {
  for (;;) {
    const paceConfig_t config = patience(60);
    const paceResult_t result = paceCommShrink(comm, dead.data(), static_cast<int>(dead.size()), made, &config);
    if (result == paceSuccess) return "";
    PACE_EXPECT(result, paceRemoteError);
    int rank = -1;
    PACE_EXPECT(paceGetLastErrorRank(comm, &rank));
    PACE_REQUIRE(std::ranges::find(dead, rank) == dead.end());
    dead.push_back(rank);
  }
}

TEST_CASE("several deaths at once, the job's first rank's too, which would have told of the others") {
  for (const std::vector<int>& victims :
       {std::vector{1, 2}, std::vector{0, 2}, std::vector{0, 1, 4}, std::vector{0, 1, 2, 3}}) {
    const auto is_victim = [&](int rank) { return std::ranges::find(victims, rank) != victims.end(); };
    ProcessRanks ranks(5, [&](int rank, paceComm_t comm, const Child::Say& say) {
      say(expect(paceBarrier(comm, nullptr)));
      if (is_victim(rank)) ::pause();
      say(paceGetErrorString(paceBarrier(comm, nullptr)));
      int dead = -1;
      (void)paceGetLastErrorRank(comm, &dead);
      if (rank == 4) std::this_thread::sleep_for(2s);  // the others have met by then, without all that have died
      paceComm_t made = nullptr;
      say(go_on_without_the_dead(comm, {dead}, &made));
      int sum = 1;
      say(expect(paceAllReduce(&sum, &sum, 1, paceInt32, paceSum, made, nullptr)));
      say(std::to_string(sum));
      ::pause();
    });
    for (int rank = 0; rank < 5; ++rank) REQUIRE(ranks[rank].line() == "");
    const auto begin = Clock::now();
    for (const int victim : victims) ranks[victim].kill(SIGKILL);
    for (int rank = 0; rank < 5; ++rank) {
      if (is_victim(rank)) continue;
      CHECK(ranks[rank].line() == paceGetErrorString(paceRemoteError));
      CHECK(ranks[rank].line() == "");
      CHECK(ranks[rank].line() == "");
      CHECK(ranks[rank].line() == std::to_string(5 - victims.size()));
    }
    CHECK(Clock::now() - begin < 20s);
  }
}

}  // namespace
}  // namespace paceline::testing
