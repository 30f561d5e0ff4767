// paceMemAlloc and paceMemFree.

#include "api/handle.h"
#include "transport/shared_heap.h"

using namespace paceline;
using namespace paceline::api;

extern "C" {

paceResult_t paceMemAlloc(void** ptr, size_t bytes) {
  return entry([&]() -> Status {
    PACE_TRY(need(ptr, "ptr"));
    auto memory = allocate_shared(bytes);
    PACE_TRY(memory.status());
    *ptr = *memory;
    return {};
  });
}

paceResult_t paceMemFree(void* ptr) {
  return entry([&] { return ptr == nullptr ? Status() : free_shared(ptr); });
}

}  // extern "C"
