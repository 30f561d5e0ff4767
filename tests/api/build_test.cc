#include "api/build.h"

#include <doctest/doctest.h>

#include "cuda/driver/device.h"

using namespace paceline;

TEST_CASE("the build describes itself with the CUDA runtime it has") {
  const std::string text = api::build_description();
  CHECK(text.find("\"version\":\"0.1.0\"") != std::string::npos);
  const std::string runtime = built_with_cuda() ? "\"runtime\":\"13.0\"" : "\"runtime\":null";
  CHECK(text.find(runtime) != std::string::npos);
}
