#include "transport/node_layout.h"

#include <algorithm>
#include <bit>

#include "base/configuration.h"
#include "base/rounding.h"
#include "schedule/schedule.h"

namespace paceline {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t smallest_slot = 16 << 10;
// Cell::bytes counts a slot.
static_assert(largest_staging / static_cast<std::size_t>(capacity(1)) < std::size_t{1} << 29);

}  // namespace

NodeLayout::NodeLayout(int ranks, int channels, std::size_t staging)
    : ranks_(static_cast<std::size_t>(ranks)), channels_(static_cast<std::size_t>(channels)) {
  cells_ = std::bit_ceil(static_cast<std::uint32_t>(capacity(ranks)));
  // A payload of 0.8 KiB or a little: what is longer gets through shuttles and slots faster (1 KiB to one of two ranks
  // of a Xeon in 0.50 us rather than 0.57, 2 KiB in 0.59 rather than 1.1), and many ranks have many mailboxes.
  cell_bytes_ = (ranks <= 16 ? 13 : 2) * cache_line;
  // More slots than ranks: some are reserved for one receiver each (SharedMemoryTransport::position_for).
  slots_ = 2 * cells_;
  slot_bytes_ = std::max(rounded_up(staging / slots_, page), smallest_slot);
  shuttle_bytes_ = std::min(slot_bytes_, staging / shuttles_of_rank / page * page);
  reasons_at_ = ranks_ * sizeof(Presence);
  mailboxes_at_ = rounded_up(reasons_at_ + ranks_ * sizeof(Reason), page);
  const std::size_t mailbox_bytes = cells_ * cell_bytes_ + sizeof(Taken);
  boards_at_ = mailboxes_at_ + ranks_ * ranks_ * channels_ * mailbox_bytes;
  shuttles_at_ = rounded_up(boards_at_ + ranks_ * channels_ * board_bytes(), page);
  slots_at_ = shuttles_at_ + shuttles() * shuttle_bytes_;
  total_ = slots_at_ + ranks_ * channels_ * slots_ * slot_bytes_;
}

std::size_t NodeLayout::mailbox(int from, int to, int channel) const {
  const std::size_t number = (static_cast<std::size_t>(to) * ranks_ + static_cast<std::size_t>(from)) * channels_ +
                             static_cast<std::size_t>(channel);
  return mailboxes_at_ + number * (cells_ * cell_bytes_ + sizeof(Taken));
}

std::size_t NodeLayout::board(int from, int channel) const {
  const std::size_t number = static_cast<std::size_t>(from) * channels_ + static_cast<std::size_t>(channel);
  return boards_at_ + number * board_bytes();
}

std::uint32_t NodeLayout::shuttles() const {
  return shuttle_bytes_ == 0 ? 0 : static_cast<std::uint32_t>(ranks_) * shuttles_of_rank;
}

std::size_t NodeLayout::shuttle(std::uint32_t number) const { return shuttles_at_ + number * shuttle_bytes_; }

std::size_t NodeLayout::slot(int rank, int channel, std::uint32_t number) const {
  const std::size_t pool = static_cast<std::size_t>(rank) * channels_ + static_cast<std::size_t>(channel);
  return slots_at_ + (pool * slots_ + number % slots_) * slot_bytes_;
}

}  // namespace paceline
