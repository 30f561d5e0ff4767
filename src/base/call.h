// A call, as messages and diagnoses name it: 16 bytes that ride in every message, so that ranks which call different
// things, or the same by different schedules, find out from the first message between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/types.h"

namespace paceline {

struct Call {
  std::uint32_t sequence = 0;  // of the communicator's collectives; for send and recv of the two ranks' messages
  std::uint32_t what = 0;      // collective (4 bits), type (4), operation (4; or what it serves), root (20)
  std::uint64_t size = 0;      // elements (48 bits), way (16)

  bool operator==(const Call&) const = default;
};
static_assert(sizeof(Call) == 16);

inline constexpr int max_ranks = 1 << 20;  // what the root's 20 bits can tell apart

// Of an algorithm, its chunk and, if one is asked for, its radix, which every rank must have chosen.
std::uint16_t way_of(std::string_view algorithm, std::size_t chunk_bytes, int radix = 0);

// A recv carries the same words as the send that it wants. `way`: of the call's plan.
Call make_call(Collective which, DataType type, Operation op, int root, std::uint64_t count, std::uint32_t sequence,
               std::uint16_t way = 0);
// Call::size of a call of `count` elements that goes a way.
std::uint64_t with_way(std::uint64_t count, std::uint16_t way);
// What an all-gather that the library makes by itself is for: no call of the user is the same one.
enum class Serves : std::uint8_t { user, split, first_gpu_call };
Call serving(Call all_gather, Serves what);
Collective collective_of(const Call& call);
int root_of(const Call& call);
// Whether it is none of the messages between two ranks.
bool is_collective(const Call& call);
// As sentences have it: "all-reduce". A send and its receive are one call: "send/receive".
std::string_view title(const Call& call);
// Whether the calls are the same, or would be if they went the same way.
bool same_but_for_way(const Call& a, const Call& b);

// Whether one sequence number comes before another: they wrap, so that of two the nearer way decides.
constexpr bool comes_before(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) < 0; }

// "all-reduce #812 of 1024 float32, sum"; also for words that no call has (bytes from outside).
std::string describe(const Call& call);

}  // namespace paceline
