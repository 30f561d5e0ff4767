// A window: the device memory of one rank that all ranks of the communicator reach. It is what a communicator's GPUs
// talk through, and all device memory that a communicator has.
//
//   words    numbers, credits and announcements, each word written by one rank
//   small    for each source a ring of slots for short messages, in packets with their own flags (exchange_small.cuh)
//   medium   the same for longer ones, in lines with their own flags (exchange_medium.cuh)
//   large    for each source and lane a ring of chunks, with a flag for each chunk (exchange_large.cuh)
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
inline constexpr int lanes_in_block = 4;  // of long messages
inline constexpr int max_lanes = max_blocks * lanes_in_block;
inline constexpr int small_slots = 4;  // short messages that a sender may be ahead of its receiver
inline constexpr int medium_slots = 2;
inline constexpr int announcements = 8;                 // kept of each source; more than small_slots
inline constexpr int line_bytes = 128;                  // of which the last 8 are a flag
inline constexpr std::size_t largest_chunk = 32 << 10;  // bytes
// Where a rank folds, or gives and takes at the same time, shorter ones are faster: by a fifth for a long all-reduce.
inline constexpr std::size_t largest_short_chunk = 16 << 10;

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

// How many messages a rank has exchanged with another, ever.
struct Numbers {
  std::uint32_t given;
  std::uint32_t taken;
};

// The words at the beginning of a window. Indices are ranks, then lanes.
struct WindowWords {
  // Written by the other rank.
  Announcement announced[max_gpus][announcements];
  std::uint32_t credits[max_gpus];           // how many messages of this rank it has taken
  std::uint32_t ready[max_gpus][max_lanes];  // how many chunks it has put here, ever
  std::uint32_t freed[max_gpus][max_lanes];  // how many of this rank's chunks it has taken, ever
  // Written by this rank's kernels, and kept from one to the next.
  alignas(
      128) Numbers numbers[max_blocks][max_gpus];  // each block has its copy: the first may end before the last begins
  std::uint32_t chunks_given[max_gpus][max_lanes];
  std::uint32_t chunks_taken[max_gpus][max_lanes];
  std::uint64_t dummy[max_gpus];  // what barriers pass on
  // Written by the other rank's host, when it has let go of this window.
  std::uint32_t farewells[max_gpus];
};

PACE_HOST_DEVICE inline WindowWords& words(std::byte* window) { return *reinterpret_cast<WindowWords*>(window); }

// Which of the others, seen from `rank`, the places in its window belong to: all but itself.
constexpr int place_of(int source, int rank) { return source < rank ? source : source - 1; }

struct WindowLayout {
  std::uint64_t small = 0;  // where the small slots begin, bytes
  std::uint64_t medium = 0;
  std::uint64_t large = 0;        // where the rings of chunks begin
  std::uint32_t small_slot = 0;   // bytes of one
  std::uint32_t medium_slot = 0;  // bytes of one
  std::uint32_t chunk_slot = 0;   // bytes of one
  std::uint32_t chunk_slots = 0;

  static constexpr WindowLayout of(int ranks) {
    WindowLayout layout;
    layout.small = (sizeof(WindowWords) + 4095) / 4096 * 4096;
    layout.small_slot = ranks <= 4 ? 1 << 20 : ranks <= 8 ? 512 << 10 : 256 << 10;
    layout.medium = layout.small + sources(ranks) * small_slots * layout.small_slot;
    const std::uint32_t payload = ranks <= 2 ? 4 << 20 : ranks <= 4 ? 2 << 20 : ranks <= 8 ? 1 << 20 : 256 << 10;
    layout.medium_slot = (payload + line_bytes - 9) / (line_bytes - 8) * line_bytes;
    layout.large = layout.medium + sources(ranks) * medium_slots * layout.medium_slot;
    // Few enough to stay in the L2 cache until they are taken.
    layout.chunk_slot = ranks <= 2 ? largest_chunk : ranks <= 8 ? 16 << 10 : 8 << 10;
    layout.chunk_slots = ranks <= 4 ? 4 : 2;
    return layout;
  }
  static constexpr std::uint64_t sources(int ranks) { return ranks > 1 ? static_cast<std::uint64_t>(ranks) - 1 : 1; }
  // Of a window, bytes.
  [[nodiscard]] constexpr std::uint64_t total(int ranks) const {
    return large + sources(ranks) * max_lanes * chunk_slots * chunk_slot;
  }
  // Where chunk `number` of a lane lies, bytes.
  [[nodiscard]] constexpr std::uint64_t chunk(int place, std::uint32_t lane, std::uint32_t number) const {
    const std::uint64_t ring = static_cast<std::uint64_t>(place) * max_lanes + lane;
    return large + (ring * chunk_slots + number % chunk_slots) * chunk_slot;
  }
  // Payload of the longest message that fits into a small slot, bytes.
  [[nodiscard]] constexpr std::uint64_t largest_small() const { return small_slot / 2; }
  [[nodiscard]] constexpr std::uint64_t largest_medium() const { return medium_slot / line_bytes * (line_bytes - 8); }
};
static_assert(WindowLayout::of(2).total(2) < (64u << 20) && WindowLayout::of(4).total(4) < (64u << 20) &&
              WindowLayout::of(8).total(8) < (64u << 20) && WindowLayout::of(16).total(16) < (64u << 20));

}  // namespace paceline::cuda
