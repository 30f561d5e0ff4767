#include "base/hash.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>

#include "base/call.h"

namespace paceline {

// The published values of FNV-1a.
TEST_CASE("a hash is FNV-1a") {
  CHECK(add_to_hash(empty_hash, "") == 0xcbf29ce484222325U);
  CHECK(add_to_hash(empty_hash, "a") == 0xaf63dc4c8601ec8cU);
  CHECK(add_to_hash(empty_hash, "foobar") == 0x85944171f73967e8U);
}

TEST_CASE("the mark of a way is the one that other ranks make") { CHECK(way_of("ring", 65536) == 0x7f0f); }

TEST_CASE("ways of other algorithms, chunks and radices have other marks") {
  std::set<std::uint16_t> marks;
  std::size_t ways = 0;
  for (const char* algorithm : {"knomial", "recursive_doubling"})
    for (const std::size_t chunk : {1, 2, 3, 8192, 65536})
      for (const int radix : {0, 2, 3, 4, 5, 6, 7, 8, 16, 17, 32, 64, 1024}) {
        marks.insert(way_of(algorithm, chunk, radix));
        ++ways;
      }
  // Of 130 marks of 16 bits hardly any two are the same by chance.
  CHECK(marks.size() >= ways - 2);
}

}  // namespace paceline
