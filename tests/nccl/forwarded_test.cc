// What goes to NCCL's communicator beside Paceline's.
#include <stdlib.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "bootstrap/made_elsewhere.h"
#include "bootstrap/ranks.h"
#include "nccl/served_ranks.h"

using namespace paceline;
using namespace paceline::testing;

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

TEST_CASE("where one rank has no NCCL, what needs it is refused on every rank, which name it") {
  for (const bool at_first : {true, false}) {
    const Door door(has_engine);
    const MadeElsewhere made;
    ncclUniqueId id;
    std::memcpy(&id, made.id().data(), sizeof id);
    const auto one = [&](int rank, bool lacks) -> std::string {
      nccl::Real without_windows = fake();
      if (lacks) without_windows.ncclCommWindowRegister = nullptr;
      const Door own(has_engine, nullptr, &without_windows);
      ncclComm_t comm = nullptr;
      ncclWindow_t window = nullptr;
      if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess) return last_error();
      const ncclResult_t result = ncclCommWindowRegister(comm, at<void>(16), 8, &window, 1);
      std::string said = std::to_string(result) + " " + last_error(comm);
      (void)ncclCommDestroy(comm);
      return said;
    };
    Child child([&](const Child::Say& say) { say(one(1, !at_first)); });
    const std::string here = one(0, at_first), there = child.line();
    const std::string needs = "5 ncclCommWindowRegister needs NCCL itself, and rank ";
    CHECK((at_first ? here : there).find("5 ncclCommWindowRegister: NCCL 2.30.7 (") == 0);
    CHECK((at_first ? there : here).find(needs + (at_first ? "0" : "1") + " has no NCCL with it") == 0);
  }
}

TEST_CASE("all devices of a process are NCCL's also where its communicators are nonblocking") {
  const NonblockingByVariable variable;
  const Door door;
  ncclComm_t comms[2] = {};
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclInProgress);
  for (ncclComm_t comm : comms)
    for (ncclResult_t state = ncclInProgress; state == ncclInProgress;)
      REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  int rank = -1;
  CHECK(ncclCommUserRank(comms[1], &rank) == ncclSuccess);
  CHECK(rank == 1);
}

TEST_CASE("the sentence of an error that came by itself is NCCL's, not that of an earlier error") {
  const Door door;
  const ncclComm_t comm = one_rank();
  CHECK(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, nullptr, nullptr) == ncclInvalidArgument);
  REQUIRE(last_error() == "ncclAllReduce: the communicator is NULL");
  const Failing failing("asynchronously", ncclRemoteError);
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  CHECK(last_error(comm) == "the fake's last error");
}

TEST_CASE("a question of one rank waits for no other, and brings no communicator of NCCL's") {
  Child child([](const Child::Say& say) {
    const Door door(has_engine);
    ncclComm_t comms[2] = {};
    (void)ncclCommInitAll(comms, 2, nullptr);
    const ncclTeam_t world = ncclTeamWorld(comms[1]);
    say(std::to_string(world.nRanks) + " " + std::to_string(world.rank) + " " + std::to_string(world.stride));
    auto* const properties = at<ncclCommProperties_t>(16);
    say(std::to_string(ncclCommQueryProperties(comms[0], properties)));
    say(last_error(comms[0]));
    say(std::to_string(ncclTeamLsa(comms[0]).nRanks));
    say(last_error(comms[0]).substr(0, 40));
    say(Door::calls());
    ncclWindow_t windows[2] = {};
    (void)ncclGroupStart();
    for (int i = 0; i < 2; ++i) (void)ncclCommWindowRegister(comms[i], at<void>(16), 4, &windows[i], 1);
    (void)ncclGroupEnd();
    (void)Door::calls();
    say(std::to_string(ncclCommQueryProperties(comms[0], properties)));
    (void)ncclCommRevoke(comms[0], NCCL_REVOKE_DEFAULT);
    say(std::to_string(ncclCommQueryProperties(comms[0], properties)));
    const std::string calls = Door::calls();
    say(std::to_string(calls.find("ncclCommQueryProperties(comm") != std::string::npos));
    for (ncclComm_t comm : comms) (void)ncclCommAbort(comm);
  });
  const char* const none_yet =
      "ncclCommQueryProperties: NCCL has no communicator beside Paceline's yet: one comes with a call that all ranks "
      "make (ncclCommWindowRegister, ncclDevCommCreate), or by PACELINE_NCCL_FORWARD";
  for (const char* expected :
       {"2 1 1", "5", none_yet, "0", "ncclTeamLsa: NCCL has no communicator be", "", "0", "0", "1"})
    CHECK(child.line() == std::string(expected));
}
