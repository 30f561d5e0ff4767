#include "base/hash.h"

#include <doctest/doctest.h>

#include "base/call.h"

namespace paceline {

// The published values of FNV-1a.
TEST_CASE("a hash is FNV-1a") {
  CHECK(add_to_hash(empty_hash, "") == 0xcbf29ce484222325U);
  CHECK(add_to_hash(empty_hash, "a") == 0xaf63dc4c8601ec8cU);
  CHECK(add_to_hash(empty_hash, "foobar") == 0x85944171f73967e8U);
}

TEST_CASE("the mark of a way is the one that other ranks make") { CHECK(way_of("ring", 65536) == 0x7f0f); }

}  // namespace paceline
