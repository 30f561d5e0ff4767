// Copies, by what is to be in the cache afterwards.
//
// Past the cache, for data that nobody reads again soon: a store that misses the cache otherwise fetches the line that
// it overwrites, a third of the memory traffic of a long copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/reduction.h"

namespace paceline {

// Whether long copies by `rep movs`, which the C library and the kernel make, are slow to read what another CPU wrote
// (and leave it so that this CPU is slow to write there again): on AMD's. 1 MB from one CPU's cache to another's takes
// 66 us so, 31 us by vectors (EPYC); on Intel's 97 and 101 us.
bool rep_movs_is_slow();

// Whether a few CPUs that copy at once are faster past the cache that they share as soon as their own is too small: on
// Emerald Rapids, two of which, with 2 MiB each, copy 4 MB in 225 us so and in 297 through it (a gather of 8 MB takes
// 511 and 637). Folds are not, nor are copies on the next Xeons or on EPYCs.
bool shared_cache_is_far();

// The lines of what is copied, which another CPU has written: read, and shared with that one from then on; or taken
// over, as if this CPU were to write there (`prefetchw`), for what the next rank then reads here, and in turn takes
// over. Lines that several CPUs share are slow to hand on: an all-gather of 1 MB on 8 ranks of a Xeon, in which blocks
// are passed on, takes 187 us with the first and 83 with the second. AMD's take over by themselves.
enum class Lines { read, taken };

// As memcpy, of what another CPU has written, to stay in this one's cache.
void cached_copy(std::byte* target, const std::byte* source, std::size_t bytes, Lines lines = Lines::read);

// As memcpy; the stores have left this CPU when it returns, in the order that release stores rely on.
void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes, Lines lines = Lines::read);

// As `fold` of rows of elements of `element_bytes` bytes.
void stream_fold(FoldFunction fold, std::byte* target, const std::byte* const* sources, std::size_t source_count,
                 std::size_t elements, std::size_t element_bytes);

// A call whose output has at least so many bytes does not leave them in the cache, which has no room for them: what its
// rank has of the cache that CPUs share, if `sharing` ranks take turns on each CPU, but no less than twice a CPU's own.
// What is copied there shares the room with what it is copied from; what is folded has just been read. `at_once`: ranks
// that copy at the same time.
struct StreamingFrom {
  std::size_t copies = SIZE_MAX;
  std::size_t folds = SIZE_MAX;
  bool early = false;  // copies: since the cache that CPUs share is far, and few copy
};
StreamingFrom streaming_from(double sharing, double at_once);

}  // namespace paceline
