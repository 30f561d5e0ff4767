// A lack of memory just where a test wants it.
#pragma once

namespace paceline::testing {

// Of this thread's allocations by `new` the `nth` from now, 1 the next, throws std::bad_alloc.
void fail_allocation(long nth);
// No more. Whether it would still have come.
bool spare_allocation();

}  // namespace paceline::testing
