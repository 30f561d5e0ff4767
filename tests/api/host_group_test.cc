// Groups on host memory where the memory for them is scarce.
#include <doctest/doctest.h>

#include <array>
#include <string>

#include "comm/scarce_memory.h"
#include "comm/threads.h"

namespace paceline::testing {
namespace {

// Two calls of one communicator, on two streams, in a group.
paceResult_t group_on(const std::array<paceHostStream_t, 2>& streams, paceComm_t comm, long failing_allocation) {
  static int value = 1;
  (void)paceGroupStart();
  for (paceHostStream_t stream : streams) (void)paceAllReduce(&value, &value, 1, paceInt32, paceSum, comm, stream);
  fail_allocation(failing_allocation);
  return paceGroupEnd();
}

TEST_CASE("a group on several streams, wherever it lacks memory, ends on all of them") {
  std::array<paceHostStream_t, 2> streams{};
  for (auto& stream : streams) REQUIRE(paceHostStreamCreate(&stream) == paceSuccess);
  bool lacks = true;
  long failures = 0;
  for (long nth = 1; lacks; ++nth) {
    const Ranks alone(1);  // what fails in a group is broken off
    const paceResult_t ended = group_on(streams, alone[0], nth);
    lacks = !spare_allocation();
    REQUIRE(ended == (lacks ? paceSystemError : paceSuccess));
    for (paceHostStream_t stream : streams) {
      std::uint64_t mark = 0;
      REQUIRE(paceHostStreamMark(stream, &mark) == paceSuccess);
      const paceResult_t waited = paceHostStreamWait(stream, mark, 10);
      REQUIRE(waited != paceInProgress);
      if (waited != paceSuccess) {
        ++failures;
        REQUIRE(std::string(paceGetLastError(nullptr)) == "a stream cannot take its part of a group: out of memory");
      }
      CHECK(paceHostStreamSynchronize(stream) == waited);
    }
  }
  CHECK(failures > 0);
  for (paceHostStream_t stream : streams) CHECK(paceHostStreamDestroy(stream) == paceSuccess);
}

}  // namespace
}  // namespace paceline::testing
