// A window: the device memory of one rank that all ranks of the communicator reach. It is what a communicator's GPUs
// talk through, and all device memory that a communicator has.
//
//   words     numbers, credits and announcements, each word written by one rank
//   strips    for each source and lane a ring of strips of 512 bytes, which are blank until something comes
//             (strips.cuh)
//   vouchers  a word for each strip, for what looks blank itself
//   chunks    for each source and lane a ring of chunks, with a flag for each chunk (exchange_large.cuh), or of
//             shorter ones (pushes.cuh, passes.cuh): one kernel's are all taken before another kind comes
//
// The layout depends on the number of ranks alone, so every rank knows where to write in every window.
#pragma once

#include <cstddef>
#include <cstdint>

// What kernels and the host both call.
#ifdef __CUDACC__
#define PACE_HOST_DEVICE __host__ __device__
#else
#define PACE_HOST_DEVICE
#endif

namespace paceline::cuda {

inline constexpr int max_gpus = 16;       // ranks of one communicator
inline constexpr int max_blocks = 32;     // of one kernel: those of several communicators fit on a GPU together
inline constexpr int strip_blocks = 64;   // of one that moves short messages, if the user says so
inline constexpr int lanes_in_block = 4;  // of long messages
inline constexpr int max_lanes = max_blocks * lanes_in_block;
// Of long folds that are pushed (pushes.cuh): blocks that push at most, and as many that fold; each of their warps has
// a lane, and moves so many vectors a thread at once. Where they are passed on (passes.cuh), all blocks do the same.
inline constexpr int pushing_blocks = 16;
inline constexpr int pushing_warps = 15;
inline constexpr int push_lanes = pushing_blocks * pushing_warps;
inline constexpr int push_unroll = 4;
inline constexpr std::uint32_t push_chunk = push_unroll * 512;  // bytes
inline constexpr int pass_lanes = max_blocks * pushing_warps;
inline constexpr int pass_unroll = 8;
inline constexpr std::uint32_t pass_chunk = pass_unroll * 512;  // bytes
inline constexpr std::uint32_t pass_slots = 8;                  // chunks of a lane's ring
inline constexpr int passing_warps = 15;                        // of a block that passes strips on (passed_strips.cuh)
// Words of lanes: those of a block that pushes lie in half a line, and are told in one store.
inline constexpr int words_of_block = 16;
inline constexpr int lane_words = max_blocks * words_of_block;
static_assert(words_of_block >= pushing_warps && lane_words >= max_lanes);
constexpr std::uint32_t word_of_lane(std::uint32_t block, int warp) {
  return block * words_of_block + static_cast<std::uint32_t>(warp);
}
// Kept of each source: more than a giver's calls can be ahead of those of a taker that makes the same ones (below).
inline constexpr int announcements = 256;
inline constexpr int strip_bytes = 512;  // of short messages: what a warp moves at once, 16 bytes a thread
// Of the longest piece: a kernel with no more lets the next one start at once.
inline constexpr std::uint32_t overlapped_strips = (2 << 20) / strip_bytes;
inline constexpr int direct_threads = 512;  // of a block that works in the users' buffers
// How a warp moves them: so many at once; once, if it has no more of a message, or in rounds.
struct Stride {
  int strips;
  bool once;
};
inline constexpr Stride brief_stride{1, true};
inline constexpr Stride wide_stride{2, true};
inline constexpr Stride streaming_stride{1, false};
inline constexpr Stride deep_stride{4, false};  // only what is moved as it is
inline constexpr Stride deep_once_stride{4, true};
// By few warps, of kernels that have more to do: sends and receives that are not brief, and what direct calls do
// otherwise.
inline constexpr Stride paired_stride{2, false};
// Warps that move them, in a block at most: so many that they have the registers they need. With two ranks and more
// strips than these move at once, rounds are faster.
constexpr int strip_warps(Stride stride, bool two_ranks) {
  if (!stride.once) return stride.strips == 1 ? 24 : 15;
  return two_ranks ? 16 : 24;
}
// The same of a kernel of sends and receives, each of which has warps of its own.
constexpr int message_warps(int strips) { return strip_warps({strips, strips == brief_stride.strips}, true); }
// Lanes of a sent message at most: as many warps as there are serve one that is given and one that is taken.
inline constexpr int message_lanes = strip_blocks * message_warps(paired_stride.strips) / 2;
// Lanes that have rings: with more than two ranks each has a warp for every other one.
constexpr int strip_lanes(int ranks) {
  const int in_block = ranks <= 2 ? 16 : strip_warps(brief_stride, false) / (ranks - 1);
  const int lanes = strip_blocks * in_block;
  return lanes < message_lanes ? message_lanes : lanes;
}
inline constexpr int most_strip_lanes = strip_lanes(2);
inline constexpr std::size_t largest_chunk = 32 << 10;  // bytes
// Where a rank folds, or gives and takes at the same time, shorter ones are faster: by a fifth for a long all-reduce.
inline constexpr std::size_t largest_short_chunk = 16 << 10;

struct alignas(16) Packet {
  std::uint32_t words[4];
};

// What a message is, told beside its data, so that ranks which call different things find out.
struct Announcement {
  std::uint32_t number;  // of the message, among those from this source to this rank
  std::uint32_t what;    // Call::what
  std::uint64_t count;
};
static_assert(sizeof(Announcement) == 16);

// Numbers wrap: of two the nearer way decides.
constexpr bool reached(std::uint32_t number, std::uint32_t wanted) {
  return static_cast<std::int32_t>(number - wanted) >= 0;
}
// Whether `number` is that of a message behind `wanted`, as far as its source can be ahead. For words that not all
// messages write: what is left there of long ago may look later than what is wanted now.
constexpr bool passed(std::uint32_t number, std::uint32_t wanted) {
  return number - wanted - 1 < std::uint32_t{announcements};
}
// Whether the source has called something else: that is announced of the message, or in its place stands a later one's
// announcement. So far ahead is no source whose calls are the taker's.
constexpr bool differs(const Announcement& expected, const Announcement& found) {
  return reached(found.number, expected.number) &&
         (found.number != expected.number || found.what != expected.what || found.count != expected.count);
}

// How many messages a rank has exchanged with another, ever.
struct Numbers {
  std::uint32_t given;
  std::uint32_t taken;
};

// How many strips of a lane there were, ever; by rank. A warp of this rank's reads them, and writes all but `freed`.
struct StripLane {
  std::uint32_t given[max_gpus];
  std::uint32_t taken[max_gpus];
  alignas(128) std::uint32_t freed[max_gpus];  // given ones that the other rank has taken: written by it
};

// The words at the beginning of a window. Indices are ranks, then lanes.
struct WindowWords {
  // Written by the other rank.
  Announcement announced[max_gpus][announcements];
  alignas(128) std::uint32_t ready[max_gpus][lane_words];  // how many chunks it has put here, ever
  std::uint32_t freed[max_gpus][lane_words];               // how many of this rank's chunks it has taken, ever
  // Of blocks of exchange_direct.cuh: where this rank sees the other's input and output, for odd and even messages; and
  // the last message that the block has done. Offers of messages lie where inputs do. Short messages write none of
  // these, nor of `loaded`, and numbers wrap: who waits looks for the very number, which stays until it has seen it.
  Packet sights[max_gpus][max_blocks][2][2];
  std::uint32_t finished[max_gpus][max_blocks];
  // The last message that the other's block has loaded from this rank's memory (long_messages.cuh).
  std::uint32_t loaded[max_gpus][max_blocks];
  // Written by this rank's kernels, and kept from one to the next.
  // Each block has its copy of the numbers: the first may end before the last begins.
  alignas(128) Numbers numbers[strip_blocks][max_gpus];
  std::uint32_t chunks_given[max_gpus][lane_words];
  std::uint32_t chunks_taken[max_gpus][lane_words];
  std::uint64_t dummy[max_gpus];          // what barriers pass on
  std::uint32_t went_direct[max_blocks];  // of the last kernel of exchange_direct.cuh: a copy for each block behind it
  std::uint32_t dealt;                    // hands of a call that copies or folds directly (deal.cuh); 0 between two
  std::uint32_t deals_ended;              // blocks that have had their last hand; 0 between two
  std::uint32_t ended;                    // not 0: a kernel has given up, and no later one gives anything
  std::uint32_t blocks_done;              // of kernels that were launched one by one, not by a graph; ever
  unsigned long long direct_calls;        // kernels of exchange_direct.cuh that did the work, ever
  StripLane lanes[most_strip_lanes];
  // Written by the other rank's host, when it has let go of this window.
  std::uint32_t farewells[max_gpus];
};

// What a word of a strip holds when nothing is there: one of the many patterns that stand for no number.
inline constexpr std::uint64_t blank = 0xffb1a9c57f8d2e63;

PACE_HOST_DEVICE inline WindowWords& words(std::byte* window) { return *reinterpret_cast<WindowWords*>(window); }

// Which of the others, seen from `rank`, the places in its window belong to: all but itself.
constexpr int place_of(int source, int rank) { return source < rank ? source : source - 1; }

struct WindowLayout {
  std::uint64_t strips = 0;    // where the rings of strips begin, bytes
  std::uint64_t vouchers = 0;  // where the words of the strips begin
  std::uint64_t large = 0;     // where the rings of chunks begin
  std::uint32_t strip_lanes = 0;
  std::uint32_t ring_mask = 0;   // strips of one lane, a power of two, less one
  std::uint32_t strip_row = 0;   // of all lanes' strips of one number, bytes
  std::uint32_t chunk_slot = 0;  // bytes of one
  std::uint32_t chunk_slots = 0;
  std::uint32_t push_slots = 0;  // of a lane's ring of pushed chunks: a power of two

  static constexpr WindowLayout of(int ranks) {
    WindowLayout layout;
    layout.strip_lanes = static_cast<std::uint32_t>(cuda::strip_lanes(ranks));
    // Few enough to stay in the L2 cache until they are taken.
    layout.ring_mask = (ranks <= 2 ? 64 : ranks <= 4 ? 32 : ranks <= 8 ? 16 : 8) - 1;
    layout.strip_row = layout.strip_lanes * strip_bytes;
    layout.chunk_slot = ranks <= 2 ? largest_chunk : ranks <= 8 ? 16 << 10 : 8 << 10;
    layout.chunk_slots = ranks <= 4 ? 4 : 2;
    layout.push_slots = ranks <= 2 ? 32 : ranks <= 4 ? 16 : ranks <= 8 ? 8 : 4;
    layout.strips = (sizeof(WindowWords) + 4095) / 4096 * 4096;
    layout.vouchers = layout.strips + layout.all_strips(ranks) * strip_bytes;
    layout.large = layout.vouchers + layout.all_strips(ranks) * sizeof(std::uint64_t);
    return layout;
  }
  static constexpr std::uint64_t sources(int ranks) { return ranks > 1 ? static_cast<std::uint64_t>(ranks) - 1 : 1; }
  [[nodiscard]] constexpr std::uint64_t all_strips(int ranks) const { return sources(ranks) * strip_lanes * ring(); }
  PACE_HOST_DEVICE [[nodiscard]] constexpr std::uint32_t ring() const { return ring_mask + 1; }
  // Of a window, bytes.
  [[nodiscard]] constexpr std::uint64_t total(int ranks) const { return large + sources(ranks) * chunks_of_source(); }
  [[nodiscard]] constexpr std::uint64_t chunks_of_source() const {
    return std::uint64_t{max_lanes} * chunk_slots * chunk_slot;
  }
  // Where chunk `number` of a lane lies, bytes.
  [[nodiscard]] constexpr std::uint64_t chunk(int place, std::uint32_t lane, std::uint32_t number) const {
    const std::uint64_t ring = static_cast<std::uint64_t>(place) * max_lanes + lane;
    return large + (ring * chunk_slots + number % chunk_slots) * chunk_slot;
  }
  [[nodiscard]] constexpr std::uint64_t pushed(int place, std::uint32_t lane, std::uint32_t number) const {
    const std::uint64_t slot = std::uint64_t{lane} * push_slots + number % push_slots;
    return large + static_cast<std::uint64_t>(place) * chunks_of_source() + slot * push_chunk;
  }
  // These come from one rank, and have the room of all.
  [[nodiscard]] constexpr std::uint64_t passed(std::uint32_t lane, std::uint32_t number) const {
    return large + (std::uint64_t{number % pass_slots} * pass_lanes + lane) * pass_chunk;
  }
  [[nodiscard]] constexpr bool has_room_for_pushes() const {
    return std::uint64_t{push_lanes} * push_slots * push_chunk <= chunks_of_source();
  }
  [[nodiscard]] constexpr bool has_room_for_passes(int ranks) const {
    return std::uint64_t{pass_lanes} * pass_slots * pass_chunk <= total(ranks) - large;
  }
};
static_assert(WindowLayout::of(2).total(2) < (64u << 20) && WindowLayout::of(4).total(4) < (64u << 20) &&
              WindowLayout::of(8).total(8) < (64u << 20) && WindowLayout::of(16).total(16) < (64u << 20));
// A message that is given before its taker has begun with it holds a strip of the first lane, or a chunk of some
// block's first one. Beside these there are those of two kernels, two each: the one that the taker is at, and the
// giver's, which has no room.
static_assert(WindowLayout::of(2).ring() + max_blocks * WindowLayout::of(2).chunk_slots + 4 < announcements);
static_assert(WindowLayout::of(2).has_room_for_passes(2) && WindowLayout::of(3).has_room_for_passes(3) &&
              WindowLayout::of(5).has_room_for_passes(5) && WindowLayout::of(9).has_room_for_passes(9));
static_assert(WindowLayout::of(2).has_room_for_pushes() && WindowLayout::of(4).has_room_for_pushes() &&
              WindowLayout::of(8).has_room_for_pushes() && WindowLayout::of(16).has_room_for_pushes());

}  // namespace paceline::cuda
