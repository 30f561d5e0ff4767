#include "cuda/driver/driver.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>

#include "cuda/driver/fake_driver.h"

namespace paceline::cuda {

// Every call on host memory asks. Looking for it through the file system took 17 us.
TEST_CASE("cuda driver: that it is not loaded is known at once") {
  if (driver_loaded()) return;  // a test before this one has loaded it
  constexpr int times = 2'000;
  int found = 0;
  double shortest = 1e9;  // us of ten: whatever else runs only adds to a time
  for (int turn = 0; turn < 10; ++turn) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) found += driver_loaded() ? 1 : 0;
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    shortest = std::min(shortest, took.count());
  }
  CHECK(found == 0);
  CHECK(shortest / times < 5);
}

TEST_CASE("cuda driver: one that is loaded after it was missed is found") {
  if (driver_loaded()) return;
  paceline::testing::with_fake_driver([](const auto&) { REQUIRE(driver_loaded()); });
}

}  // namespace paceline::cuda
