// What the library says of itself.
#include "nccl/insight.h"

#include <nlohmann/json.hpp>
#include <string>

#include "nccl/door.h"

using namespace paceline::testing;

TEST_CASE("what the library says of itself is JSON, also with a setting that is not UTF-8") {
  const Door door(has_engine, "\xff");
  const auto described = nlohmann::json::parse(paceNcclDescribe());
  CHECK(described["problem"].get<std::string>().find("PACELINE_NCCL_FORWARD=\uFFFD: '\uFFFD' is not among all") == 0);
}
