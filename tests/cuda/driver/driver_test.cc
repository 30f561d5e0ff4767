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

TEST_CASE("cuda driver: a thread has the context afterwards that it had before, or none") {
  paceline::testing::with_fake_driver([](const auto& driver) {
    const int retained = driver.call("fake_cuda_retained");
    const auto context_now = [&] {
      void* context = nullptr;
      REQUIRE(driver.call("cuCtxGetCurrent", &context) == 0);
      return context;
    };
    const auto device_now = [&] {
      int device = -1;
      REQUIRE(driver.call("cuCtxGetDevice", &device) == 0);
      return device;
    };
    int own = 0;
    void* const contexts[] = {nullptr, driver.context(), &own};  // none, GPU 0's, and one that the program has made
    for (void* const before : contexts) {
      driver.call("cuCtxSetCurrent", before);
      {
        const OnDevice three(3);
        REQUIRE(device_now() == 3);
        {
          const OnDevice still_three(3);
          REQUIRE(driver.call("fake_cuda_retained") == retained + 1);  // nothing was to be done
          const OnDevice five(5);
          REQUIRE(device_now() == 5);
        }
        REQUIRE(device_now() == 3);
      }
      REQUIRE(context_now() == before);
      REQUIRE(driver.call("fake_cuda_retained") == retained);
    }
    // The runtime takes a thread without a context for one on GPU 0, the driver does not.
    driver.call("cuCtxSetCurrent", static_cast<void*>(nullptr));
    const OnDevice zero(0);
    REQUIRE(context_now() == driver.context());
  });
}

}  // namespace paceline::cuda
