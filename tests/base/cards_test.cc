#include "base/cards.h"

#include <doctest/doctest.h>

namespace paceline {
namespace {

struct Card {
  int number = 0;
};

using Shown = std::vector<std::vector<std::byte>>;

}  // namespace

TEST_CASE("cards: each rank's, by rank") {
  const auto cards = show(Card{7}, [](std::span<const std::byte> mine) -> Result<Shown> {
    Shown all(3, std::vector<std::byte>(mine.begin(), mine.end()));
    all[1] = std::vector<std::byte>(sizeof(Card));
    return all;
  });
  REQUIRE(cards.ok());
  REQUIRE(cards->size() == 3);
  CHECK((*cards)[0].number == 7);
  CHECK((*cards)[1].number == 0);
  CHECK((*cards)[2].number == 7);
}

TEST_CASE("cards: one of another size is an error that names its rank") {
  const auto cards = show(Card{}, [](std::span<const std::byte> mine) -> Result<Shown> {
    Shown all(2, std::vector<std::byte>(mine.begin(), mine.end()));
    all[1].pop_back();
    return all;
  });
  REQUIRE_FALSE(cards.ok());
  CHECK(cards.status().code() == Code::internal);
  CHECK(cards.status().message() == "rank 1 showed a card of another size");
}

TEST_CASE("cards: what keeps them from coming is told") {
  const auto cards = show(
      Card{}, [](std::span<const std::byte>) -> Result<Shown> { return Status(Code::timeout, "rank 1 did not come"); });
  REQUIRE_FALSE(cards.ok());
  CHECK(cards.status().message() == "rank 1 did not come");
}

}  // namespace paceline
