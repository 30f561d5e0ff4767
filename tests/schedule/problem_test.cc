#include "schedule/problem.h"

#include <doctest/doctest.h>

namespace paceline {

TEST_CASE("parts cover all elements, in order, without overlap") {
  for (const std::size_t count : {0u, 1u, 5u, 63u, 64u, 4095u, 4096u, 100000u}) {
    for (int parts = 1; parts <= 7; ++parts) {
      std::size_t reached = 0;
      for (int i = 0; i < parts; ++i) {
        const Part part = part_of(count, parts, i);
        CHECK(part.offset == reached);
        reached += part.count;
      }
      CHECK(reached == count);
    }
  }
}

TEST_CASE("large parts begin at whole vectors") {
  for (int i = 0; i < 3; ++i) CHECK(part_of(10000, 3, i).offset % 64 == 0);
}

TEST_CASE("lengths of buffers") {
  const Problem gather{.collective = Collective::gather, .ranks = 4, .root = 2, .count = 3};
  CHECK(input_elements(gather, 2) == 3);
  CHECK(output_elements(gather, 2) == 12);
  CHECK(output_elements(gather, 1) == 0);
  const Problem scatter{.collective = Collective::reduce_scatter, .ranks = 4, .count = 3, .in_place = true};
  CHECK(input_elements(scatter, 1) == 12);
  CHECK(output_elements(scatter, 1) == 3);
  CHECK(input_in_output(scatter, 2) == -6);
}

}  // namespace paceline
