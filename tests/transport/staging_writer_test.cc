#include "transport/staging_writer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace paceline {
namespace {

constexpr std::size_t message = 64 << 10;

// Messages until the way is decided anew. `through` and `past`: how long one takes; the first of each kind is
// disturbed.
void decide(StagingWay& way, std::uint64_t through, std::uint64_t past) {
  while (!way.on_trial()) way.wrote(message, 0);
  for (int i = 0; i < 2 * StagingWay::tried_messages; ++i) {
    CHECK(way.on_trial());
    CHECK(way.past_cache() == (i >= StagingWay::tried_messages));
    const std::uint64_t time = way.past_cache() ? past : through;
    way.wrote(message, i % StagingWay::tried_messages == 0 ? 100 * time : time);
  }
  CHECK_FALSE(way.on_trial());
}

int messages_to_trial(StagingWay& way) {
  int messages = 0;
  for (; !way.on_trial(); ++messages) way.wrote(message, 0);
  return messages;
}

TEST_CASE("staging is written past the cache while that is worth it, and tried again") {
  StagingWay way;
  CHECK_FALSE(way.past_cache());
  CHECK(messages_to_trial(way) == StagingWay::first_bytes / message);
  decide(way, 2000, 2900);  // near
  CHECK_FALSE(way.past_cache());
  CHECK(messages_to_trial(way) == StagingWay::decided_bytes / message);
  decide(way, 22000, 2900);  // far
  CHECK(way.past_cache());
  CHECK(messages_to_trial(way) == StagingWay::decided_bytes / message);
  CHECK_FALSE(way.past_cache());  // the trial's first messages
  decide(way, 5000, 2900);
  CHECK_FALSE(way.past_cache());
}

TEST_CASE("one message that was read nearby does not hide that the others were read far away") {
  StagingWay way;
  while (!way.on_trial()) way.wrote(message, 0);
  for (int i = 0; i < StagingWay::tried_messages; ++i) way.wrote(message, i == 1 ? 2200 : 22000);
  for (int i = 0; i < StagingWay::tried_messages; ++i) way.wrote(message, 2900);
  CHECK(way.past_cache());
}

TEST_CASE("messages longer than what is left begin a trial, and count by the byte") {
  StagingWay way;
  way.wrote(2 * StagingWay::first_bytes, 0);
  CHECK(way.on_trial());
  for (int i = 0; i < StagingWay::tried_messages; ++i) way.wrote(message, 22000);
  for (int i = 0; i < StagingWay::tried_messages; ++i) way.wrote(4 * message, 4 * 2900);
  CHECK(way.past_cache());
}

TEST_CASE("a staging writer writes what it was given through all its trials") {
  StagingWriter writer;
  std::vector<std::byte> from(300 << 10);
  std::vector<std::byte> to(from.size());
  for (int call = 0; call < 300; ++call) {
    const std::size_t bytes = call % 3 == 0 ? 100 : from.size() - static_cast<std::size_t>(call);
    for (std::size_t i = 0; i < bytes; i += 50) from[i] = static_cast<std::byte>(i + static_cast<std::size_t>(call));
    writer.write(to.data(), from.data(), bytes);
    REQUIRE(std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(bytes), to.begin()));
  }
}

}  // namespace
}  // namespace paceline
