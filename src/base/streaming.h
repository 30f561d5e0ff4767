// Copies past the cache, for data that nobody reads again soon: a store that misses the cache otherwise fetches the
// line that it overwrites, a third of the memory traffic of a long copy.
#pragma once

#include <cstddef>

#include "base/reduction.h"

namespace paceline {

// As memcpy; the stores have left this CPU when it returns, in the order that release stores rely on.
void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes);

// As `fold` of rows of elements of `element_bytes` bytes.
void stream_fold(FoldFunction fold, std::byte* target, const std::byte* const* sources, std::size_t source_count,
                 std::size_t elements, std::size_t element_bytes);

// Calls that write at least this many bytes, twice a CPU's own cache, do not leave them there.
std::size_t streaming_from();

}  // namespace paceline
