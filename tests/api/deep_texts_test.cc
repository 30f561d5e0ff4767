// Texts that nest without end are errors, and exhaust no stack.
#include <doctest/doctest.h>

#include <string>

#include "comm/threads.h"

namespace paceline::testing {
namespace {

TEST_CASE("a request or a profile that nests without end is an invalid argument") {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  const char* answer = nullptr;
  for (const char* key : {"nodes", "gpus", "color"}) {
    const std::string request = R"({"preset": "rx2", ")" + std::string(key) + "\": " + deep + "}";
    CHECK(paceTopology(request.c_str(), &answer) == paceInvalidArgument);
    CHECK(std::string(paceGetLastError(nullptr)) == "the request is no JSON object");
    CHECK(pacePredict(request.c_str(), &answer) == paceInvalidArgument);
  }
  CHECK(paceCheckTuning(deep.c_str()) == paceInvalidArgument);
  const Ranks communicator(1);
  CHECK(paceTune(communicator[0], deep.c_str(), 0, &answer) == paceInvalidArgument);
  CHECK(paceCommSetTuning(communicator[0], deep.c_str()) == paceInvalidArgument);
}

}  // namespace
}  // namespace paceline::testing
