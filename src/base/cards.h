// What ranks show each other as they connect: cards. All ranks run the same build, so the bytes are the struct's.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace paceline {

// Gives bytes, the same number on every rank, and gets everyone's by the communicator's ranks.
using Gather = std::function<Result<std::vector<std::vector<std::byte>>>(std::span<const std::byte> mine)>;

// Everyone's card, by rank.
template <class Card>
Result<std::vector<Card>> show(const Card& mine, const Gather& gather) {
  static_assert(std::is_trivially_copyable_v<Card>);
  const auto bytes = gather(std::as_bytes(std::span(&mine, 1)));
  if (!bytes.ok()) return bytes.status();
  std::vector<Card> cards(bytes->size());
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    if ((*bytes)[rank].size() != sizeof(Card))
      return Status(Code::internal, fmt::format("rank {} showed a card of another size", rank));
    std::memcpy(&cards[rank], (*bytes)[rank].data(), sizeof(Card));
  }
  return cards;
}

}  // namespace paceline
