// The making of NCCL's communicators beside Paceline's: what it waits for, and what ends it.
#include <signal.h>

#include <array>
#include <cstring>
#include <future>
#include <string>
#include <thread>

#include "bootstrap/made_elsewhere.h"
#include "bootstrap/ranks.h"
#include "nccl/served_ranks.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

ncclResult_t register_windows(const std::array<ncclComm_t, 2>& comms) {
  ncclWindow_t windows[2] = {};
  CHECK(ncclGroupStart() == ncclSuccess);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(ncclCommWindowRegister(comms[i], at<void>(16), 4, &windows[i], 1) == ncclSuccess);
  return ncclGroupEnd();
}

// A door before an NCCL whose makings end only with this. What each gets then is put away.
class Blocking {
 public:
  explicit Blocking(const char* forward = nullptr) : door_(has_engine, forward, &library_) {
    library_.ncclCommInitRankConfig = [](ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
      ++begun_;
      while (blocks_) std::this_thread::yield();
      const ncclResult_t result = fake().ncclCommInitRankConfig(made, ranks, id, rank, config);
      ++made_;
      return result;
    };
    library_.ncclCommAbort = [](ncclComm_t comm) {
      ++aborted_;
      return fake().ncclCommAbort(comm);
    };
    blocks_ = true;
    begun_ = made_ = aborted_ = 0;
  }
  ~Blocking() {
    blocks_ = false;
    CHECK(comes([] { return made_ == begun_ && aborted_ == made_; }));
  }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

  static bool begun(int makings) {
    return comes([&] { return begun_ == makings; });
  }

 private:
  nccl::Real library_ = fake();
  Door door_;
  inline static std::atomic<bool> blocks_;
  inline static std::atomic<int> begun_, made_, aborted_;
};

}  // namespace

TEST_CASE("a rank that dies while NCCL makes a communicator ends the wait of the others, who name it") {
  for (const bool from_the_start : {true, false}) {
    const char* const forward = from_the_start ? "gather" : nullptr;
    const Blocking door(forward);
    const MadeElsewhere made;
    ncclUniqueId id;
    std::memcpy(&id, made.id().data(), sizeof id);
    const auto come = [&](int rank) {
      ncclComm_t comm = nullptr;
      ncclWindow_t window = nullptr;
      ncclResult_t result = ncclCommInitRank(&comm, 2, id, rank);
      if (result == ncclSuccess) result = ncclCommWindowRegister(comm, at<void>(16), 8, &window, 1);
      std::string said = std::to_string(result) + " " + last_error(comm);
      (void)ncclCommAbort(comm);
      return said;
    };
    const Child child([&](const Child::Say&) {
      nccl::Real dying = fake();
      dying.ncclCommInitRankConfig = [](ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*) {
        (void)::raise(SIGKILL);
        return ncclSystemError;
      };
      const Door theirs(has_engine, forward, &dying);
      (void)come(1);
    });
    const std::string here = come(0);
    CHECK(here.starts_with("6 rank 1 "));
  }
}

TEST_CASE("an abort ends the wait for NCCL's communicator, on every rank") {
  const Blocking door;
  ncclComm_t comms[2] = {};
  REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  std::array<std::future<ncclResult_t>, 2> waiting;
  for (std::size_t i = 0; i < 2; ++i)
    waiting[i] = std::async(std::launch::async, [comm = comms[i]] {
      ncclWindow_t window = nullptr;
      return ncclCommWindowRegister(comm, at<void>(16), 8, &window, 1);
    });
  CHECK(Blocking::begun(2));
  ncclResult_t state = ncclInProgress;
  CHECK(ncclCommGetAsyncError(comms[1], &state) == ncclSuccess);  // a watchdog's
  CHECK(state == ncclSuccess);
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  for (std::future<ncclResult_t>& one : waiting) CHECK(one.get() == ncclRemoteError);
  CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
}

TEST_CASE("a communicator that is aborted while NCCL makes one beside it is not made, on any rank") {
  const Blocking door("gather");
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = nonblocking();
  ncclComm_t comms[2] = {};
  for (int rank = 0; rank < 2; ++rank)
    CHECK(ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config) == ncclInProgress);
  CHECK(Blocking::begun(2));
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  ncclResult_t state = ncclInProgress;
  CHECK(comes([&] { return ncclCommGetAsyncError(comms[1], &state) == ncclSuccess && state != ncclInProgress; }));
  CHECK(state == ncclRemoteError);
  CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
}

TEST_CASE("of a making that fails in NCCL on one rank the others get no communicator either") {
  const Door door(has_engine, "gather");
  const MadeElsewhere made;
  ncclUniqueId id;
  std::memcpy(&id, made.id().data(), sizeof id);
  const Child child([&](const Child::Say&) {
    const Failing failing("ncclCommInitRankConfig", ncclSystemError);
    ncclComm_t comm = nullptr;
    (void)ncclCommInitRank(&comm, 2, id, 1);
    ::pause();
  });
  const Blocking own("gather");
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclRemoteError);
}

TEST_CASE("a communicator whose making failed in NCCL is given up, and made anew when it is needed again") {
  const Door door(has_engine);
  std::array<ncclComm_t, 2> comms{};
  REQUIRE(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
  {
    const Failing failing("ncclGroupEnd", ncclSystemError);
    CHECK(register_windows(comms) == ncclSystemError);
  }
  CHECK(Door::calls().find("ncclCommAbort(comm") != std::string::npos);
  CHECK(register_windows(comms) == ncclSuccess);
  CHECK(Door::calls().find("ncclCommInitRankConfig(") != std::string::npos);
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("a communicator of NCCL's that is nonblocking by NCCL_COMM_BLOCKING is waited for") {
  const NonblockingByVariable variable;
  const Door door(has_engine, "all_reduce");
  on_ranks(2, [](int, ncclComm_t comm) -> std::string {
    int value = 1;
    NCCL_EXPECT(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, nullptr));
    return "";
  });
  CHECK(Door::calls().find("ncclAllReduce(") != std::string::npos);

  const Door other(has_engine);
  std::array<ncclComm_t, 2> comms{};
  REQUIRE(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
  CHECK(register_windows(comms) == ncclSuccess);
  CHECK(Door::calls().find("ncclCommWindowRegister(comm") != std::string::npos);
  for (ncclComm_t comm : comms) CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("what ends the wait for a nonblocking communicator of NCCL's is its error, or that another rank is gone") {
  const NonblockingByVariable variable;
  const Door door(has_engine);
  std::array<ncclComm_t, 2> comms{};
  REQUIRE(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
  {
    const Failing failing("asynchronously", ncclSystemError);
    CHECK(register_windows(comms) == ncclSystemError);
    CHECK(last_error() == "the fake's last error");
  }
  CHECK(Door::calls().find("ncclCommAbort(comm") != std::string::npos);
  const Failing never_ready("asynchronously", ncclInProgress);
  std::thread waiting([&] { CHECK(register_windows(comms) == ncclRemoteError); });
  std::string calls;
  CHECK(comes([&] { return (calls += Door::calls()).find("ncclCommGetAsyncError(comm") != std::string::npos; }));
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  waiting.join();
  CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
}
