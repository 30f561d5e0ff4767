#include "cuda/calls/task.h"

#include <doctest/doctest.h>

using namespace paceline::cuda;

TEST_CASE("a kernel's long wait goes into a word and comes out of it, its time cut") {
  constexpr std::uint64_t unit = 1 << 27;
  for (const std::uint32_t what : {0U, 0x12345678U, 0xffffffffU})
    for (const int rank : {0, 1, max_gpus - 1})
      for (const std::uint64_t ns : {std::uint64_t{0}, long_wait_ns, 86'400 * std::uint64_t{1'000'000'000}}) {
        const LongWaitWord told = LongWaitWord::of(LongWaitWord{what, rank, ns}.pack());
        CHECK(told.what == what);
        CHECK(told.rank == rank);
        CHECK(told.ns == ns / unit * unit);
      }
  CHECK((LongWaitWord{0, 0, long_wait_ns}.pack()) != 0);  // which is: none
  // A second later, when the host looks again, it is another word.
  CHECK((LongWaitWord{7, 3, long_wait_ns}.pack()) != (LongWaitWord{7, 3, long_wait_ns + unit}.pack()));
}
