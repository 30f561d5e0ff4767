#include "cuda/driver.h"

#include <doctest/doctest.h>

#include <chrono>

#include "cuda/fake_driver.h"

namespace paceline::cuda {

// Every call on host memory asks. Looking for it through the file system took 17 us.
TEST_CASE("cuda driver: that it is not loaded is known at once") {
  if (driver_loaded()) return;  // a test before this one has loaded it
  constexpr int times = 20'000;
  int found = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) found += driver_loaded() ? 1 : 0;
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  CHECK(found == 0);
  CHECK(took.count() / times < 5);
}

TEST_CASE("cuda driver: one that is loaded after it was missed is found") {
  if (driver_loaded()) return;
  paceline::testing::with_fake_driver([](const auto&) { REQUIRE(driver_loaded()); });
}

}  // namespace paceline::cuda
