#include "cuda/memory/virtual_memory.h"

#include <cstddef>

#include "cuda/driver/driver.h"

namespace paceline::cuda {
namespace {

// The driver's functions, numbers and structs as cuda.h has them.
using Result = int;
using Address = unsigned long long;
using PhysicalHandle = unsigned long long;
constexpr int attribute_buffer_id = 7;
constexpr int attribute_range_start = 11;
constexpr int attribute_range_size = 12;
constexpr int attribute_handle_types = 14;
constexpr int attribute_mapping_size = 18;
constexpr int attribute_mapping_base = 19;
constexpr int attribute_memory_block_id = 20;
constexpr unsigned handle_type_descriptor = 1;
constexpr unsigned handle_type_fabric = 8;
struct Access {
  int location_type;
  int location;
  int flags;
};
constexpr int location_device = 1;
constexpr int access_read_and_write = 3;

// Where cuda.h has void*, what is given is an address or a descriptor as a number: the same to the caller.
struct Functions {
  Result (*pointer_attributes)(unsigned count, int* attributes, void** data, Address address) = nullptr;
  Result (*context_device)(int* device) = nullptr;
  Result (*retain)(PhysicalHandle* handle, Address address) = nullptr;
  Result (*release)(PhysicalHandle handle) = nullptr;
  Result (*to_shareable)(void* shareable, PhysicalHandle handle, unsigned type, unsigned long long flags) = nullptr;
  Result (*from_shareable)(PhysicalHandle* handle, std::intptr_t shareable, unsigned type) = nullptr;
  Result (*reserve)(Address* address, std::size_t bytes, std::size_t alignment, Address hint,
                    unsigned long long flags) = nullptr;
  Result (*free)(Address address, std::size_t bytes) = nullptr;
  Result (*map)(Address address, std::size_t bytes, std::size_t offset, PhysicalHandle handle,
                unsigned long long flags) = nullptr;
  Result (*unmap)(Address address, std::size_t bytes) = nullptr;
  Result (*set_access)(Address address, std::size_t bytes, const Access* access, std::size_t count) = nullptr;
  bool all = false;

  Functions() {
    find_driver_function("cuPointerGetAttributes", pointer_attributes);
    find_driver_function("cuCtxGetDevice", context_device);
    find_driver_function("cuMemRetainAllocationHandle", retain);
    find_driver_function("cuMemRelease", release);
    find_driver_function("cuMemExportToShareableHandle", to_shareable);
    find_driver_function("cuMemImportFromShareableHandle", from_shareable);
    find_driver_function("cuMemAddressReserve", reserve);
    find_driver_function("cuMemAddressFree", free);
    find_driver_function("cuMemMap", map);
    find_driver_function("cuMemUnmap", unmap);
    find_driver_function("cuMemSetAccess", set_access);
    all = pointer_attributes != nullptr && context_device != nullptr && retain != nullptr && release != nullptr &&
          to_shareable != nullptr && from_shareable != nullptr && reserve != nullptr && free != nullptr &&
          map != nullptr && unmap != nullptr && set_access != nullptr;
  }
};

// nullptr: the driver is not there, or too old.
const Functions* functions() {
  if (!driver_loaded()) return nullptr;
  static const Functions once;
  return once.all ? &once : nullptr;
}

bool lies_within(std::uint64_t inner, std::uint64_t inner_bytes, std::uint64_t outer, std::uint64_t outer_bytes) {
  return inner >= outer && inner_bytes <= outer_bytes && inner - outer <= outer_bytes - inner_bytes;
}

struct Attributes {
  MemoryPiece piece;
  unsigned long long handle_types = 0;  // the driver writes four bytes of it, or all
};

Attributes attributes_of(const Functions& driver, std::uint64_t address) {
  Attributes found;
  Address range = 0;
  Address base = 0;
  std::size_t range_bytes = 0;
  std::size_t bytes = 0;
  unsigned long long block = 0;
  unsigned long long buffer = 0;
  int attributes[] = {attribute_buffer_id,    attribute_range_start,  attribute_range_size,     attribute_handle_types,
                      attribute_mapping_size, attribute_mapping_base, attribute_memory_block_id};
  void* data[] = {&buffer, &range, &range_bytes, &found.handle_types, &bytes, &base, &block};
  constexpr unsigned shareable = handle_type_descriptor | handle_type_fabric;
  if (driver.pointer_attributes(std::size(attributes), attributes, data, address) != 0) return {};
  if (block == 0 || (found.handle_types & shareable) == 0) return {};
  if (!lies_within(address, 1, base, bytes) || !lies_within(base, bytes, range, range_bytes)) return {};
  found.piece = {base, bytes, range, range_bytes, {block, buffer}};
  return found;
}

}  // namespace

MemoryPiece piece_at(std::uint64_t address) {
  const Functions* const driver = functions();
  return driver == nullptr ? MemoryPiece() : attributes_of(*driver, address).piece;
}

PieceHandle handle_of_piece(std::uint64_t address) {
  PieceHandle made;
  const Functions* const driver = functions();
  if (driver == nullptr) return made;
  const unsigned long long types = attributes_of(*driver, address).handle_types;
  PhysicalHandle physical = 0;
  if (types == 0 || driver->retain(&physical, address) != 0) return made;
  int descriptor = -1;
  if ((types & handle_type_descriptor) != 0 &&
      driver->to_shareable(&descriptor, physical, handle_type_descriptor, 0) == 0) {
    made.kind = PieceHandle::Kind::descriptor;
    made.descriptor = FileDescriptor(descriptor);
  } else if ((types & handle_type_fabric) != 0 &&
             driver->to_shareable(made.fabric.data(), physical, handle_type_fabric, 0) == 0) {
    made.kind = PieceHandle::Kind::fabric;
  }
  (void)driver->release(physical);
  return made;
}

std::unique_ptr<MirroredRange> MirroredRange::reserve(std::uint64_t bytes) {
  const Functions* const driver = functions();
  int device = 0;
  Address address = 0;
  if (driver == nullptr || driver->context_device(&device) != 0 || driver->reserve(&address, bytes, 0, 0, 0) != 0)
    return nullptr;
  return std::unique_ptr<MirroredRange>(new MirroredRange(address, bytes, device));
}

MirroredRange::~MirroredRange() { (void)functions()->free(address_, bytes_); }

bool MirroredRange::map(std::uint64_t offset, std::uint64_t bytes, const PieceHandle& handle) const {
  if (!lies_within(offset, bytes, 0, bytes_) || bytes == 0) return false;
  const Functions& driver = *functions();
  PhysicalHandle physical = 0;
  std::array<char, 64> fabric = handle.fabric;
  const Result imported =
      handle.kind == PieceHandle::Kind::fabric
          ? driver.from_shareable(&physical, reinterpret_cast<std::intptr_t>(fabric.data()), handle_type_fabric)
          : driver.from_shareable(&physical, handle.descriptor.get(), handle_type_descriptor);
  if (imported != 0) return false;
  const bool mapped = driver.map(address_ + offset, bytes, 0, physical, 0) == 0;
  (void)driver.release(physical);  // the mapping keeps it
  if (!mapped) return false;
  const Access access{location_device, device_, access_read_and_write};
  if (driver.set_access(address_ + offset, bytes, &access, 1) == 0) return true;
  unmap(offset, bytes);
  return false;
}

void MirroredRange::unmap(std::uint64_t offset, std::uint64_t bytes) const {
  (void)functions()->unmap(address_ + offset, bytes);
}

}  // namespace paceline::cuda
