#include "api/build.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "cuda/driver/device.h"
#include "paceline/paceline.h"

using namespace paceline;

TEST_CASE("the build describes itself with the CUDA runtime it has") {
  const std::string text = api::build_description();
  const std::string version = fmt::format("\"version\":\"{}.{}.{}\"", PACE_MAJOR, PACE_MINOR, PACE_PATCH);
  CHECK(text.find(version) != std::string::npos);
  const std::string runtime = built_with_cuda() ? "\"runtime\":\"13.0\"" : "\"runtime\":null";
  CHECK(text.find(runtime) != std::string::npos);
}
