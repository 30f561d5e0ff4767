// The agreement of a communicator's ranks, in processes that were set up differently.
#include "nccl/serving.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bootstrap/made_elsewhere.h"
#include "bootstrap/ranks.h"
#include "nccl/door.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

struct Process {
  const char* cuda;
  const char* forward;
  const nccl::Real* library;
};

std::string joined(const ncclUniqueId& id, int rank, ncclComm_t& comm) {
  const ncclResult_t result = ncclCommInitRank(&comm, 2, id, rank);
  return result == ncclSuccess ? "made" : std::to_string(result) + " " + last_error();
}

// Rank 0 here, rank 1 in a child: what each says when it has made the communicator, and what its fake was called with.
struct Both {
  std::string here, there, calls_here, calls_there;
};

Both make_in(const Process& one, const Process& other) {
  const Door door(one.cuda, one.forward, one.library);
  const MadeElsewhere made;
  ncclUniqueId id;
  std::memcpy(&id, made.id().data(), sizeof id);
  Child child([&](const Child::Say& say) {
    const Door theirs(other.cuda, other.forward, other.library);
    ncclComm_t comm = nullptr;
    say(joined(id, 1, comm));
    std::string calls;
    for (char letter : Door::calls()) calls += letter == '\n' ? ';' : letter;
    say(calls);
    (void)ncclCommDestroy(comm);
  });
  Both both;
  ncclComm_t comm = nullptr;
  both.here = joined(id, 0, comm);
  both.there = child.line();
  both.calls_there = child.line();
  both.calls_here = Door::calls();
  (void)ncclCommDestroy(comm);
  return both;
}

}  // namespace

TEST_CASE("ranks that forward different services do not get a communicator, and are named") {
  const Both both = make_in({has_engine, nullptr, &fake()}, {has_engine, "gather,send_recv", &fake()});
  CHECK(both.here == "5 PACELINE_NCCL_FORWARD differs: rank 0 forwards [], rank 1 [gather, send_recv]");
  CHECK(both.there == both.here);
}

TEST_CASE("a rank without an engine makes all calls NCCL's, on every rank") {
  const Both both = make_in({has_engine, nullptr, &fake()}, {nullptr, nullptr, &fake()});
  CHECK(both.here == "made");
  CHECK(both.there == "made");
  CHECK(both.calls_here.find("ncclGetUniqueId(") == 0);
  CHECK(both.calls_here.find("ncclCommInitRankConfig(") != std::string::npos);
  CHECK(both.calls_there.find("ncclCommInitRankConfig(") == 0);
}

TEST_CASE("NCCL_DEBUG says that a communicator became NCCL's, and why") {
  Child child([](const Child::Say& say) {
    const Door door(R"({"devices":1})");
    (void)::setenv("NCCL_DEBUG", "VERSION", 1);
    std::FILE* const output = std::tmpfile();
    const int before = ::dup(STDOUT_FILENO);
    (void)::dup2(::fileno(output), STDOUT_FILENO);
    (void)ncclCommDestroy(one_rank(1, 0));
    (void)::dup2(before, STDOUT_FILENO);
    std::rewind(output);
    std::array<char, 512> line{};
    while (std::fgets(line.data(), line.size(), output) != nullptr)
      if (const char* const sentence = std::strstr(line.data(), "] NCCL INFO a ")) say(sentence);
    (void)std::fclose(output);
  });
  CHECK(child.line() ==
        "] NCCL INFO a communicator of 1 ranks: NCCL serves all its calls: calls on rank 0's GPU would go "
        "through host memory");
}

TEST_CASE("GPUs whose calls would go through host memory make all calls NCCL's") {
  const Both both = make_in({R"({"devices":8})", nullptr, &fake()}, {R"({"devices":8})", nullptr, &fake()});
  CHECK(both.here == "made");
  CHECK(both.calls_here.find("ncclCommInitRankConfig(") != std::string::npos);
  CHECK(both.calls_there.find("ncclCommInitRankConfig(") == 0);
}

TEST_CASE("without NCCL they get no communicator, and are told why") {
  const Both both = make_in({R"({"devices":8})", nullptr, nullptr}, {R"({"devices":8})", nullptr, nullptr});
  CHECK(both.here.find("5 the making of the communicator needs NCCL itself (calls on rank 0's GPU would go "
                       "through host memory), and there is no libnccl.so.2 in /nowhere.") == 0);
  CHECK(both.there.find("5 the making of the communicator needs NCCL itself (calls on rank 0's GPU would") == 0);
}

TEST_CASE("a rank without NCCL, where NCCL is needed, is named on every rank") {
  const Both both = make_in({has_engine, "gather", &fake()}, {has_engine, "gather", nullptr});
  CHECK(both.here ==
        "5 the making of the communicator needs NCCL itself (PACELINE_NCCL_FORWARD says so), and rank 1 has none: see "
        "PACELINE_NCCL_LIBRARY");
  CHECK(both.there.find("5 the making of the communicator needs NCCL itself (PACELINE_NCCL_FORWARD says so), and there "
                        "is no libnccl.so.2 in /nowhere.") == 0);
}

TEST_CASE("where NCCL_COMM_ID says where the ranks meet, the ids are NCCL's") {
  Child child([](const Child::Say& say) {
    const auto whose = [] {
      ncclUniqueId id{};
      if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) return last_error();
      return std::string(nccl::is_pacelines(id) ? "Paceline's" : "NCCL's");
    };
    (void)::setenv("NCCL_COMM_ID", "127.0.0.1:4000", 1);
    {
      const Door door(has_engine);
      say(whose());
      ncclComm_t comms[2] = {};
      (void)ncclCommInitAll(comms, 2, nullptr);
      say(Door::calls().find("ncclCommInitAll(") != std::string::npos ? "NCCL's" : "Paceline's");
    }
    const Door alone(has_engine, nullptr, nullptr);
    say(whose());
    (void)::setenv("NCCL_COMM_ID", "", 1);
    say(whose());
  });
  CHECK(child.line() == "NCCL's");
  CHECK(child.line() == "NCCL's");
  CHECK(child.line().find("ncclGetUniqueId needs NCCL itself (NCCL_COMM_ID says where the ranks meet, each with an id "
                          "of its own), and there is no libnccl.so.2 in /nowhere.") == 0);
  CHECK(child.line() == "Paceline's");
}

TEST_CASE("the ids of both makers are told apart") {
  const Door door(has_engine);
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(nccl::is_pacelines(id));
  const Door other;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(!nccl::is_pacelines(id));
}
