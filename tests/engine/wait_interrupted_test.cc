#include <doctest/doctest.h>

#include "base/interrupted.h"
#include "engine/fakes.h"
#include "engine/wait.h"

namespace paceline {

TEST_CASE("wait: it ends when the program wants it to, asked not more often than ten times a second") {
  static int times;
  times = 0;
  Waiting rank;
  ask_when_waiting([] { return ++times == 3 ? 1 : 0; });
  const auto begin = std::chrono::steady_clock::now();
  const Status status = rank.run();
  ask_when_waiting(nullptr);
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(300));
  CHECK(times == 3);
  CHECK(status.code() == Code::aborted);
  REQUIRE(rank.membership.reports.size() == 1);
  CHECK(rank.membership.reports[0].message() == "rank 0 was interrupted in all-reduce #1 of 4 float32, sum");
  CHECK(rank.membership.reports[0].detail().rank == 0);
}

}  // namespace paceline
