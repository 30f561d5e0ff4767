#include "cuda/driver/device.h"

#include <doctest/doctest.h>

using namespace paceline;

TEST_CASE("devices are numbered from 0 and known to their count") {
  Result<int> count = device_count();
  if (!built_with_cuda()) {
    REQUIRE_FALSE(count.ok());
    CHECK(count.status().code() == Code::unsupported);
    CHECK(device(0).status().code() == Code::unsupported);
    return;
  }
  REQUIRE_MESSAGE(count.ok(), count.status().message());
  for (int number = 0; number < *count; ++number) {
    Result<Device> found = device(number);
    REQUIRE_MESSAGE(found.ok(), found.status().message());
    CHECK(found->number == number);
    CHECK_FALSE(found->name.empty());
    CHECK(found->memory_bytes > 0);
    CHECK(found->compute_major >= 5);
    CHECK(found->multiprocessors > 0);
  }
  CHECK(device(*count).status().code() == Code::invalid_argument);
  CHECK(device(-1).status().code() == Code::invalid_argument);
}
