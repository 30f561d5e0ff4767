#include "base/fixed_text.h"

#include <doctest/doctest.h>

#include <array>
#include <string>

namespace paceline {

TEST_CASE("fixed text: what fits comes back, and nothing of what was there before") {
  std::array<char, 8> card{'o', 'l', 'd', 'e', 'r'};
  put(card, "new");
  CHECK(text_in(card) == "new");
  CHECK(card == std::array<char, 8>{'n', 'e', 'w'});
  char in_c[4];
  put(in_c, "");
  CHECK(text_in(in_c).empty());
}

TEST_CASE("fixed text: what does not fit is cut, and still ends") {
  std::array<char, 4> card{};
  put(card, "longer");
  CHECK(text_in(card) == "lon");
  CHECK(std::string(card.data()) == "lon");
}

TEST_CASE("fixed text: it ends with its bytes where nothing ends it") {
  CHECK(text_in(std::array<char, 3>{'a', 'b', 'c'}) == "abc");
}

}  // namespace paceline
