// GPU memory that is mapped piece by piece: a range of addresses is reserved (cuMemAddressReserve), and physical
// allocations (cuMemCreate) are mapped into it side by side (cuMemMap). torch's expandable segments are made so, of
// pieces of 2 or 20 MB that are unmapped and mapped again while a tensor's address stays; NCCL's ncclMemAlloc and
// torch's symmetric memory are one piece each.
//
// There is no CUDA IPC for it. Each piece has a handle of its own for other processes, if it was made for that: a file
// descriptor, or the bytes of a fabric handle.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/file_descriptor.h"

namespace paceline::cuda {

// A piece where it is mapped in this process.
struct MemoryPiece {
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;  // 0: there is none
  std::uint64_t range = 0;  // where the reserved range begins
  std::uint64_t range_bytes = 0;
  // Of the physical memory, and of the allocation as the driver counts them: what was unmapped and is something else
  // now has others, at the same address too.
  std::array<std::uint64_t, 2> id{};
};
// What lies at an address, if it can be shared with other processes.
MemoryPiece piece_at(std::uint64_t address);

// What another process needs to map a piece.
struct PieceHandle {
  enum class Kind : std::uint32_t { none, descriptor, fabric };

  Kind kind = Kind::none;
  FileDescriptor descriptor;
  std::array<char, 64> fabric{};
};
PieceHandle handle_of_piece(std::uint64_t address);

// Reserved addresses, into which this process maps pieces of another's range, each at its place there. Read and written
// by the GPU that was current when this was made.
class MirroredRange {
 public:
  // nullptr: that cannot be had.
  static std::unique_ptr<MirroredRange> reserve(std::uint64_t bytes);
  // When no piece is mapped any more.
  ~MirroredRange();
  MirroredRange(const MirroredRange&) = delete;
  MirroredRange& operator=(const MirroredRange&) = delete;

  [[nodiscard]] std::uint64_t address() const { return address_; }
  // False: it cannot be mapped. The handle is not needed afterwards.
  [[nodiscard]] bool map(std::uint64_t offset, std::uint64_t bytes, const PieceHandle& handle) const;
  // No kernel may be using it: the driver does not wait for any.
  void unmap(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  MirroredRange(std::uint64_t address, std::uint64_t bytes, int device)
      : address_(address), bytes_(bytes), device_(device) {}

  std::uint64_t address_;
  std::uint64_t bytes_;
  int device_;
};

}  // namespace paceline::cuda
