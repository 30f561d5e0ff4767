#include "tuning/variant.h"

#include <doctest/doctest.h>

namespace paceline {

TEST_CASE("an algorithm's name may say how it is to run") {
  const auto read = [](std::string_view text) { return *read_variant(text); };
  CHECK(read("").algorithm.empty());
  CHECK(read("ring").algorithm == "ring");
  CHECK(read("ring").variant == Variant());
  CHECK(read("ring chunk=65536").variant == Variant{.chunk = 65536});
  CHECK(read("direct protocol=single_copy").variant == Variant{.protocol = Protocol::single_copy});
  CHECK(read("direct chunk=1 protocol=staged").variant == Variant{.chunk = 1, .protocol = Protocol::staged});
  CHECK(read("knomial radix=8").variant == Variant{.radix = 8});
}

TEST_CASE("what else it says is an error") {
  for (const char* text : {"ring chunk=0", "ring chunk=", "ring chunk=4K", "ring chunk=-1", "ring protocol=automatic",
                           "ring protocol=", "ring fast", "ring  chunk=1", "knomial radix=1",
                           "knomial radix=", "knomial radix=9999999999"}) {
    INFO(text);
    CHECK(read_variant(text).status().code() == Code::invalid_argument);
  }
  CHECK(read_variant("ring fast").status().message() ==
        "'fast' after the algorithm ring: there are chunk=BYTES, radix=K (from 2), protocol=staged and "
        "protocol=single_copy");
}

TEST_CASE("an algorithm that is forced is in the table, and has a radix if one is said") {
  for (const char* text : {"", " chunk=64", "ring", "ring chunk=64", "knomial radix=3"}) {
    INFO(text);
    CHECK(known_variant(text).ok());
  }
  const std::string unknown = known_variant("nonsense radix=3").status().message();
  CHECK(unknown.starts_with("there is no algorithm 'nonsense'; there are direct, "));
  CHECK(known_variant("ring radix=3").status().message().starts_with("ring has no radix; there are "));
  CHECK(known_variant("ring fast").status().message() == read_variant("ring fast").status().message());
}

}  // namespace paceline
