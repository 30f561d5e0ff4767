// How long the chunks are in which messages go.
#include "algorithms/chunks.h"

#include <doctest/doctest.h>

#include <cstddef>

namespace paceline {

TEST_CASE("what takes a single hop goes in one piece up to 16 KB, then in pairs of pages") {
  const CostModel model;
  for (std::size_t elements = 1; elements < 4096; elements += 7) CHECK(pipeline_chunk(elements, 1, model) >= elements);
  for (std::size_t elements = 4096; elements < 1 << 22; elements *= 3) {
    CHECK(pipeline_chunk(elements, 1, model) * model.element % 8192 == 0);
    CHECK(pipeline_chunk(elements, 1, model) < elements);
  }
  CHECK(pipeline_chunk(4000, 3, model) < 2048);  // further on each rank passes a chunk on while it takes the next
}

TEST_CASE("what all ranks read goes in halves or chunks of 32 KB where they share memory") {
  CostModel model;
  model.element = 1;
  CHECK(fan_chunk(48 << 10, 8, model) == 24 << 10);
  CHECK(fan_chunk(80'000, 3, model) == 32 << 10);
  CHECK(fan_chunk(4 << 20, 8, model) == pipeline_chunk(4 << 20, 1, model));
  CHECK(fan_chunk(80'000, 2, model) == pipeline_chunk(80'000, 1, model));
  CostModel over_tcp = model;
  over_tcp.multicast_share = 1;
  CHECK(fan_chunk(80'000, 8, over_tcp) == pipeline_chunk(80'000, 1, over_tcp));
}

TEST_CASE("what all ranks exchange goes in slices of 256 KB of about 0.4 to 4 MB") {
  CostModel model;
  model.element = 1;
  CHECK(exchange_chunk((1 << 20) / 16, 16, model) == 16 << 10);
  CHECK(exchange_chunk((1 << 20) / 8, 8, model) == 32 << 10);
  CHECK(exchange_chunk(300'000 / 8, 8, model) >= 300'000 / 8);
  CHECK(exchange_chunk(75'000, 8, model) == 40 << 10);  // half, in whole pairs of pages
  for (const std::size_t part : {std::size_t{5 << 20} / 8, std::size_t{1} << 61})
    CHECK(exchange_chunk(part, 8, model) == largest_chunk(model));
  CHECK(exchange_chunk(0, 8, model) >= 1);
  model.sharing = 2;
  CHECK(exchange_chunk((1 << 20) / 8, 8, model) == largest_chunk(model));
}

}  // namespace paceline
