// Where the lists of ncclDevCommRequirements lie, and how large all of it is, in each version of NCCL.
// tests/python/test_nccl_api.py compares it with NVIDIA's headers.
#pragma once

#include <cstddef>

namespace paceline::nccl {

struct RequirementsLayout {
  std::size_t size = 0;                // of the whole; 0: a head says it, which ends where the lists are
  std::size_t lists = 0;               // where the pointers to both lie, one after the other
  std::size_t resource = 0, team = 0;  // size of a node, which begins with the pointer to the next one; 0: unknown
};

constexpr RequirementsLayout requirements_layout(int version) {
  constexpr std::size_t pointer = sizeof(void*), head = 2 * pointer;
  if (version < 22807) return {3 * pointer, 0, 4 * pointer, 4 * pointer};
  if (version < 22900) return {7 * pointer, 0, 7 * pointer, 4 * pointer};
  if (version < 23100) return {0, head, 7 * pointer, 4 * pointer};
  return {};
}

}  // namespace paceline::nccl
