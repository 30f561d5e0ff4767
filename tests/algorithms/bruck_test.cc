#include <doctest/doctest.h>

#include <ctime>

#include "algorithms/table.h"

namespace paceline {

TEST_CASE("one rank's part of Bruck's all-to-all of 8,192 ranks is written without the other ranks' copies") {
  const Problem problem{.collective = Collective::all_to_all, .ranks = 8192, .count = 1};
  const Algorithm& bruck = *algorithm_named("bruck");
  const std::clock_t began = std::clock();
  Schedule schedule(problem, bruck.parameters(problem, {}), 5);
  bruck.write(schedule);
  // For each of 13 bits half of the blocks are packed, and one message is sent and received; then all lie in scratch
  // or, one of them, in the input.
  CHECK(schedule.steps(5).size() == 13 * (4096 + 2) + 8192);
  CHECK(std::clock() - began < CLOCKS_PER_SEC / 2);
}

}  // namespace paceline
