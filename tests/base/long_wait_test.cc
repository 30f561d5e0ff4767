#include "base/long_wait.h"

#include <doctest/doctest.h>

namespace paceline {

TEST_CASE("a long wait is told of once for each level, and a later one again") {
  LongWait wait;
  for (int i = 0; i < 2; ++i) {
    CHECK_FALSE(wait.notice(0).has_value());
    CHECK_FALSE(wait.notice(notable_wait_s - 1).has_value());
    CHECK(wait.notice(notable_wait_s) == LogLevel::info);
    CHECK_FALSE(wait.notice(alarming_wait_s - 1).has_value());
    CHECK(wait.notice(alarming_wait_s) == LogLevel::warn);
    CHECK_FALSE(wait.notice(alarming_wait_s - 1).has_value());  // of another thread that began later
    CHECK_FALSE(wait.notice(2 * alarming_wait_s).has_value());
  }
  wait = {};
  CHECK(wait.notice(alarming_wait_s) == LogLevel::warn);
}

}  // namespace paceline
