// What goes to NCCL's communicator beside Paceline's.
#include <array>
#include <string>

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
