// What calls of a group point to, when they run at its end.
#include <array>
#include <span>
#include <vector>

#include "nccl/served_ranks.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

// ncclDevCommRequirements as NCCL 2.29 begins it, and before that without its head.
struct Node {
  Node* next = nullptr;
  std::array<int, 12> rest{};
};
struct Requirements28 {
  Node *resources = nullptr, *teams = nullptr;
  std::array<int, 10> rest{};
};
struct Requirements29 {
  std::size_t size = sizeof(Requirements29);
  unsigned magic = NCCL_API_MAGIC, version = 22900;
  Requirements28 body;
};

std::vector<int> seen;  // by NCCL

void see(const Requirements28& wanted) {
  seen = {wanted.rest[9]};
  for (const Node* node = wanted.resources; node != nullptr; node = node->next) seen.push_back(node->rest[11]);
  for (const Node* node = wanted.teams; node != nullptr; node = node->next) seen.push_back(node->rest[5]);
}

ncclResult_t create_28(ncclComm_t, const ncclDevCommRequirements_t* wanted, ncclDevComm_t*) {
  see(*reinterpret_cast<const Requirements28*>(wanted));
  return ncclSuccess;
}
ncclResult_t create_29(ncclComm_t, const ncclDevCommRequirements_t* wanted, ncclDevComm_t*) {
  see(reinterpret_cast<const Requirements29*>(wanted)->body);
  return ncclSuccess;
}
ncclResult_t wait_for(int count, ncclWaitSignalDesc_t* signals, ncclComm_t, cudaStream_t) {
  seen.clear();
  for (const ncclWaitSignalDesc_t& one : std::span(signals, static_cast<std::size_t>(count))) seen.push_back(one.peer);
  return ncclSuccess;
}

}  // namespace

TEST_CASE("what a call of a group points to is the program's again when it returns, as with NCCL") {
  nccl::Real real = fake();
  real.ncclWaitSignal = wait_for;
  const Door door(has_engine, nullptr, &real);
  const auto in_group = [](auto call) {
    ncclComm_t comm = nullptr;
    REQUIRE(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    call(comm);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(ncclCommAbort(comm) == ncclSuccess);
  };
  for (const bool with_head : {true, false}) {
    real.version = with_head ? 22902 : 22809;
    real.ncclDevCommCreate = with_head ? create_29 : create_28;
    in_group([&](ncclComm_t comm) {
      std::array<Node, 3> nodes;
      for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].rest.fill(static_cast<int>(i) + 1);
      nodes[0].next = &nodes[1];
      Requirements29 wanted;
      wanted.body = {&nodes[0], &nodes[2], {}};
      wanted.body.rest.fill(7);
      void* const given = with_head ? static_cast<void*>(&wanted) : &wanted.body;
      CHECK(ncclDevCommCreate(comm, static_cast<ncclDevCommRequirements_t*>(given), at<ncclDevComm_t>(16)) ==
            ncclSuccess);
      wanted = {};
      nodes.fill({});
    });
    CHECK(seen == std::vector<int>{7, 1, 2, 3});
  }
  in_group([&](ncclComm_t comm) {
    std::array<ncclWaitSignalDesc_t, 2> signals{{{1, 4, 0, 0}, {1, 5, 0, 0}}};
    CHECK(ncclWaitSignal(2, signals.data(), comm, nullptr) == ncclSuccess);
    signals.fill({});
  });
  CHECK(seen == std::vector<int>{4, 5});
}
