// The kernels of each data type, as the runtime launches them.
#pragma once

#include "base/types.h"

namespace paceline::cuda {

struct ByRanks {
  const void* any;
  const void* two;
  [[nodiscard]] const void* of(int ranks) const { return ranks == 2 ? two : any; }
};
// Of short messages.
struct StripKernels {
  ByRanks brief;
  ByRanks wide;
  ByRanks streaming;
  const void* relaying;  // the same, of more than two ranks that relay what they have taken
};
struct Kernels {
  StripKernels folding;
  const void* large;
  ByRanks direct;
  const void* passed_strips;  // null where sums are wider than the type
  const void* walk;           // of a schedule (walk.cuh)
};
Kernels kernels_of(DataType type);
// Of short messages that are moved as they are.
struct MovingKernels : StripKernels {
  ByRanks deep;
  ByRanks deep_once;  // a warp has no more than it moves at once
};
MovingKernels moving_kernels();
// Makes `words` words of 8 bytes blank.
const void* blank_kernel();
// Copies bytes, of a GPU's own memory: (from, to, bytes), multiples of 16, by blocks of direct_threads.
const void* copy_kernel();
// Of sends and receives: they copy bytes. By strips, one at once or several; in chunks; and both ways side by side.
struct MessageKernels {
  const void* brief;
  const void* streaming;
  const void* large;
  const void* both;
};
MessageKernels message_kernels();

// Shared memory of a block of the large kernel, bytes: with room for bulk copies, and without.
extern const int large_shared_bytes;
extern const int large_shared_bytes_without_chunks;
// Threads of a block.
extern const int large_block;
extern const int large_block_with_strips;

}  // namespace paceline::cuda
