// paceMemAlloc and paceMemFree.

#include "api/handle.h"
#include "transport/shared_heap.h"

using namespace paceline;
using namespace paceline::api;

extern "C" {

paceResult_t paceMemAlloc(void** ptr, size_t bytes) {
  return guarded([&] {
    if (ptr == nullptr) return finish(Status(Code::invalid_argument, "ptr is NULL"));
    auto memory = allocate_shared(bytes);
    if (!memory.ok()) return finish(memory.status());
    *ptr = *memory;
    return paceSuccess;
  });
}

paceResult_t paceMemFree(void* ptr) {
  return guarded([&] { return finish(ptr == nullptr ? Status() : free_shared(ptr)); });
}

}  // extern "C"
