#include "comm/scarce_memory.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace {

thread_local long until_failure = 0;  // 0: none

}  // namespace

namespace paceline::testing {

void fail_allocation(long nth) { until_failure = nth; }
bool spare_allocation() { return std::exchange(until_failure, 0) > 0; }

}  // namespace paceline::testing

// The tests' own, in place of the library's; those of arrays come here too. All that such a delete may get: a sanitizer
// has each by itself, and complains of memory that it gave and free() takes.
void* operator new(std::size_t bytes) {
  if (until_failure > 0 && --until_failure == 0) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
