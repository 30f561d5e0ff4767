#include "transport/node_layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "base/configuration.h"
#include "schedule/schedule.h"

namespace paceline {
namespace {

struct Piece {
  std::size_t begin;
  std::size_t bytes;
};

std::vector<Piece> pieces_of(const NodeLayout& layout, int ranks, int channels) {
  std::vector<Piece> pieces;
  for (int rank = 0; rank < ranks; ++rank) {
    pieces.push_back({layout.presence(rank), sizeof(Presence)});
    pieces.push_back({layout.reason(rank), sizeof(Reason)});
    for (int channel = 0; channel < channels; ++channel) {
      for (int other = 0; other < ranks; ++other) {
        pieces.push_back({layout.mailbox(rank, other, channel), layout.cells() * layout.cell_bytes()});
        pieces.push_back({layout.taken(rank, other, channel), sizeof(Taken)});
        pieces.push_back({layout.board_taken(rank, other, channel), sizeof(Taken)});
      }
      pieces.push_back({layout.board(rank, channel), layout.cells() * layout.cell_bytes()});
      for (std::uint32_t slot = 0; slot < layout.slots(); ++slot)
        pieces.push_back({layout.slot(rank, channel, slot), layout.slot_bytes()});
    }
  }
  for (std::uint32_t number = 0; number < layout.shuttles(); ++number)
    pieces.push_back({layout.shuttle(number), layout.shuttle_bytes()});
  std::ranges::sort(pieces, {}, &Piece::begin);
  return pieces;
}

}  // namespace

TEST_CASE("node layout: nothing overlaps, everything lies inside and on cache lines of its own") {
  for (int ranks : {1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 64}) {
    for (int channels : {1, 2}) {
      for (std::size_t staging : {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{1'200'003},
                                  std::size_t{3} << 20, largest_staging}) {
        INFO(ranks, " ranks, ", channels, " channels, staging ", staging);
        const NodeLayout layout(ranks, channels, staging);
        std::size_t end = 0;
        bool apart = true;
        bool aligned = true;
        for (const Piece& piece : pieces_of(layout, ranks, channels)) {
          apart = apart && piece.begin >= end;
          aligned = aligned && piece.begin % cache_line == 0;
          end = piece.begin + piece.bytes;
        }
        CHECK(apart);
        CHECK(aligned);
        CHECK(end <= layout.total());
      }
    }
  }
}

TEST_CASE("node layout: rings have room for what may be under way") {
  for (int ranks = 1; ranks <= 100; ++ranks) {
    const NodeLayout layout(ranks, 2, 0);
    CHECK(layout.cells() >= static_cast<std::uint32_t>(capacity(ranks)));
    CHECK(std::has_single_bit(layout.cells()));
    CHECK(layout.slots() >= static_cast<std::uint32_t>(capacity(ranks)));
    // Some of them are reserved, one for each receiver.
    CHECK(layout.slots() > static_cast<std::uint32_t>(ranks));
  }
}

TEST_CASE("node layout: sizes by default") {
  struct Wanted {
    int ranks;
    std::size_t cell_payload;
    std::size_t slot_bytes;
  };
  for (const Wanted& wanted : {Wanted{2, 808, 128 << 10}, Wanted{4, 808, 128 << 10}, Wanted{8, 808, 128 << 10},
                               Wanted{16, 808, 64 << 10}, Wanted{17, 104, 32 << 10}, Wanted{64, 104, 16 << 10}}) {
    INFO(wanted.ranks, " ranks");
    const NodeLayout layout(wanted.ranks, 2, default_staging);
    CHECK(layout.cell_payload() == wanted.cell_payload);
    CHECK(layout.slot_bytes() == wanted.slot_bytes);
  }
}

TEST_CASE("node layout: slots are whole pages, hold the staging asked for, and can be counted by a cell") {
  for (int ranks : {2, 4, 5, 16, 64}) {
    for (std::size_t staging :
         {std::size_t{1}, std::size_t{100'003}, std::size_t{1'200'003}, std::size_t{5} << 20, largest_staging}) {
      INFO(ranks, " ranks, staging ", staging);
      const NodeLayout layout(ranks, 2, staging);
      CHECK(layout.slot_bytes() % 4096 == 0);
      CHECK(layout.slot_bytes() >= 16 << 10);
      CHECK(layout.slots() * layout.slot_bytes() >= staging);
      Cell cell{};
      cell.bytes = static_cast<std::uint32_t>(layout.slot_bytes()) & 0x3fffffff;
      CHECK(std::size_t{cell.bytes} == layout.slot_bytes());
    }
  }
}

TEST_CASE("node layout: slot numbers go round") {
  const NodeLayout layout(3, 2, 0);
  CHECK(layout.slot(1, 1, 0) == layout.slot(1, 1, layout.slots()));
  CHECK(layout.slot(1, 1, 3) == layout.slot(1, 1, 0) + 3 * layout.slot_bytes());
}

}  // namespace paceline
