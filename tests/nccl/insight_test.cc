// What the library says of itself.
#include "nccl/insight.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "nccl/door.h"

using namespace paceline::testing;

TEST_CASE("whatever handle a program asks with, the last error is told, as in NCCL") {
  const Door door(has_engine);
  std::array<unsigned char, 4096> bytes;
  bytes.fill(0x41);
  auto* comm = reinterpret_cast<ncclComm_t>(bytes.data());  // as a variable that no making has written holds it
  REQUIRE(ncclCommInitRank(&comm, 2, ncclUniqueId{}, 5) == ncclInvalidArgument);
  CHECK(last_error(comm) == "ncclCommInitRank: rank 5 of 2 ranks");
  CHECK(ncclCommGetAsyncError(comm, nullptr) == ncclInvalidArgument);
  CHECK(last_error(comm).find("ncclCommGetAsyncError: ") == 0);
}

TEST_CASE("what the library says of itself is JSON, also with a setting that is not UTF-8") {
  const Door door(has_engine, "\xff");
  const auto described = nlohmann::json::parse(paceNcclDescribe());
  CHECK(described["problem"].get<std::string>().find("PACELINE_NCCL_FORWARD=\uFFFD: '\uFFFD' is not among all") == 0);
}
