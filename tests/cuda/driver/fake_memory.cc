// A stand-in for what the CUDA driver knows of memory, in the library of tests/nccl/fake_cuda.cc: physical allocations
// are files in memory, addresses are reserved without access, and a piece is mapped as a shared mapping of its file, so
// that what one process writes another reads. Strict where the driver is: what is mapped twice, unmapped in part, used
// without access or given back twice is an error.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace {

constexpr int success = 0;
constexpr int invalid = 1;
constexpr int not_supported = 801;
constexpr std::size_t granularity = std::size_t{1} << 21;

struct Physical {
  int file = -1;
  std::size_t bytes = 0;
  unsigned types = 0;  // of handles that it was made for
  int device = 0;
  bool managed = false;
  bool has_ipc = false;
  std::uint64_t id = 0;
  ~Physical() { ::close(file); }
};
struct Handle {
  std::shared_ptr<Physical> memory;
  int references = 1;
};
struct Mapping {
  std::size_t bytes = 0;
  std::shared_ptr<Physical> memory;
  std::uint64_t handle = 0;
  std::uint64_t id = 0;
};

std::mutex mutex;  // guards all below
std::map<std::uint64_t, Handle> handles;
std::map<std::uint64_t, std::size_t> reservations;
std::map<std::uint64_t, Mapping> mappings;
std::uint64_t last_id = 0;
int refused_imports = 0;
int questions = 0;    // about addresses
int ipc_handles = 0;  // that were made

// The entry of a map from addresses whose bytes hold `address`.
template <class Map, class Bytes>
auto holding(Map& map, std::uint64_t address, Bytes bytes) {
  auto place = map.upper_bound(address);
  if (place == map.begin()) return map.end();
  --place;
  return address - place->first < bytes(place->second) ? place : map.end();
}
auto reservation_of(std::uint64_t address) {
  return holding(reservations, address, [](std::size_t bytes) { return bytes; });
}
auto mapping_of(std::uint64_t address) {
  return holding(mappings, address, [](const Mapping& mapping) { return mapping.bytes; });
}

std::uint64_t add_handle(std::shared_ptr<Physical> memory) {
  const std::uint64_t handle = ++last_id;
  handles[handle] = {std::move(memory), 1};
  return handle;
}

int import_file(std::uint64_t* handle, int file) {
  struct stat facts {};
  if (refused_imports > 0) {
    --refused_imports;
    ::close(file);
    return not_supported;
  }
  if (::fstat(file, &facts) != 0) return invalid;
  auto memory = std::make_shared<Physical>();
  memory->file = file;
  memory->bytes = static_cast<std::size_t>(facts.st_size);
  memory->types = 1;
  memory->id = ++last_id;
  *handle = add_handle(std::move(memory));
  return success;
}

void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

// The beginning of CUmemAllocationProp.
struct Properties {
  int type;
  unsigned handle_types;
  int location_type;
  int location;
  char rest[64];
};
struct Access {
  int location_type;
  int location;
  int flags;
};

FAKE int cuMemCreate(std::uint64_t* handle, std::size_t bytes, const Properties* properties, unsigned long long flags) {
  const std::lock_guard lock(mutex);
  if (bytes == 0 || bytes % granularity != 0 || flags != 0) return invalid;
  auto memory = std::make_shared<Physical>();
  memory->file = ::memfd_create("fake GPU memory", MFD_CLOEXEC);
  if (memory->file < 0 || ::ftruncate(memory->file, static_cast<off_t>(bytes)) != 0) return invalid;
  memory->bytes = bytes;
  memory->types = properties->handle_types;
  memory->device = properties->location;
  memory->id = ++last_id;
  *handle = add_handle(std::move(memory));
  return success;
}

FAKE int cuMemRelease(std::uint64_t handle) {
  const std::lock_guard lock(mutex);
  const auto place = handles.find(handle);
  if (place == handles.end()) return invalid;
  if (--place->second.references == 0) handles.erase(place);
  return success;
}

FAKE int cuMemRetainAllocationHandle(std::uint64_t* handle, void* address) {
  const std::lock_guard lock(mutex);
  const auto place = mapping_of(reinterpret_cast<std::uint64_t>(address));
  if (place == mappings.end()) return invalid;
  *handle = place->second.handle;
  auto [known, is_new] = handles.try_emplace(*handle, Handle{place->second.memory, 0});
  ++known->second.references;
  return success;
}

FAKE int cuMemExportToShareableHandle(void* shareable, std::uint64_t handle, unsigned type, unsigned long long flags) {
  const std::lock_guard lock(mutex);
  const auto place = handles.find(handle);
  if (place == handles.end() || (place->second.memory->types & type) == 0 || flags != 0) return invalid;
  const int file = place->second.memory->file;
  if (type == 1) {
    *static_cast<int*>(shareable) = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    return success;
  }
  std::snprintf(static_cast<char*>(shareable), 64, "/proc/%d/fd/%d", static_cast<int>(::getpid()), file);
  return success;
}

FAKE int cuMemImportFromShareableHandle(std::uint64_t* handle, void* shareable, unsigned type) {
  const std::lock_guard lock(mutex);
  const int file = type == 1 ? ::fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)), F_DUPFD_CLOEXEC, 0)
                             : ::open(static_cast<const char*>(shareable), O_RDWR | O_CLOEXEC);
  return file < 0 ? invalid : import_file(handle, file);
}

FAKE int cuMemAddressReserve(std::uint64_t* address, std::size_t bytes, std::size_t, std::uint64_t,
                             unsigned long long) {
  const std::lock_guard lock(mutex);
  if (bytes == 0 || bytes % granularity != 0) return invalid;
  void* const found = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return invalid;
  *address = reinterpret_cast<std::uint64_t>(found);
  reservations[*address] = bytes;
  return success;
}

FAKE int cuMemAddressFree(std::uint64_t address, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  const auto place = reservations.find(address);
  if (place == reservations.end() || place->second != bytes) return invalid;
  const auto mapped = mappings.lower_bound(address);
  if (mapped != mappings.end() && mapped->first < address + bytes) return invalid;
  reservations.erase(place);
  ::munmap(at(address), bytes);
  return success;
}

FAKE int cuMemMap(std::uint64_t address, std::size_t bytes, std::size_t offset, std::uint64_t handle,
                  unsigned long long flags) {
  const std::lock_guard lock(mutex);
  const auto range = reservation_of(address);
  const auto place = handles.find(handle);
  if (range == reservations.end() || place == handles.end() || offset != 0 || flags != 0) return invalid;
  if (address + bytes > range->first + range->second || bytes > place->second.memory->bytes) return invalid;
  const auto next = mappings.lower_bound(address);
  if (mapping_of(address) != mappings.end() || (next != mappings.end() && next->first < address + bytes))
    return invalid;
  if (::mmap(at(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, place->second.memory->file, 0) == MAP_FAILED)
    return invalid;
  mappings[address] = {bytes, place->second.memory, handle, ++last_id};
  return success;
}

FAKE int cuMemSetAccess(std::uint64_t address, std::size_t bytes, const Access* access, std::size_t count) {
  const std::lock_guard lock(mutex);
  if (count != 1 || access->location_type != 1 || access->location < 0 || access->flags != 3) return invalid;
  for (std::uint64_t next = address; next < address + bytes;) {
    const auto place = mappings.find(next);
    if (place == mappings.end()) return invalid;
    next += place->second.bytes;
  }
  return ::mprotect(at(address), bytes, PROT_READ | PROT_WRITE) == 0 ? success : invalid;
}

FAKE int cuMemUnmap(std::uint64_t address, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  const auto place = mappings.find(address);
  if (place == mappings.end() || place->second.bytes != bytes) return invalid;
  mappings.erase(place);
  (void)::mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return success;
}

// What is no memory of the GPU has zeros.
FAKE int cuPointerGetAttributes(unsigned count, const int* attributes, void** data, std::uint64_t address) {
  const std::lock_guard lock(mutex);
  ++questions;
  const auto range = reservation_of(address);
  const auto mapping = mapping_of(address);
  const bool mapped = mapping != mappings.end();
  const auto put = [](void* into, auto value) { std::memcpy(into, &value, sizeof value); };
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case 2: put(data[i], mapped ? 2U : 0U); break;
      case 7: put(data[i], mapped ? mapping->second.id : std::uint64_t{0}); break;
      case 8: put(data[i], mapped && mapping->second.memory->managed ? 1 : 0); break;
      case 9: put(data[i], mapped ? mapping->second.memory->device : -1); break;
      case 10: put(data[i], mapped && mapping->second.memory->has_ipc ? 1 : 0); break;
      case 11: put(data[i], mapped ? range->first : std::uint64_t{0}); break;
      case 12: put(data[i], mapped ? range->second : std::size_t{0}); break;
      case 14: put(data[i], mapped ? mapping->second.memory->types : 0U); break;
      case 18: put(data[i], mapped ? mapping->second.bytes : std::size_t{0}); break;
      case 19: put(data[i], mapped ? mapping->first : std::uint64_t{0}); break;
      case 20: put(data[i], mapped ? mapping->second.memory->id : std::uint64_t{0}); break;
      default: return invalid;
    }
  }
  return success;
}

// The process's own memory is opened where it is.
struct IpcHandle {
  std::uint64_t address;
  char rest[56];
};
FAKE int cuIpcGetMemHandle(IpcHandle* handle, std::uint64_t address) {
  const std::lock_guard lock(mutex);
  ++ipc_handles;
  const auto place = mapping_of(address);
  if (place == mappings.end() || !place->second.memory->has_ipc) return invalid;
  *handle = {address, {}};
  return success;
}
FAKE int cuIpcOpenMemHandle_v2(void** memory, IpcHandle handle, unsigned /*flags*/) {
  *memory = at(handle.address);
  return success;
}
FAKE int cuIpcCloseMemHandle(std::uint64_t /*address*/) { return success; }

// ---- For tests alone ----

FAKE int fake_cuda_questions() {
  const std::lock_guard lock(mutex);
  return questions;
}
FAKE int fake_cuda_ipc_handles() {
  const std::lock_guard lock(mutex);
  return ipc_handles;
}

// What was made and not given back.
FAKE int fake_cuda_objects() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(handles.size() + reservations.size() + mappings.size());
}
static int mark(std::uint64_t address, bool Physical::*attribute) {
  const std::lock_guard lock(mutex);
  const auto place = mapping_of(address);
  if (place == mappings.end()) return invalid;
  (*place->second.memory).*attribute = true;
  return success;
}
// The memory there counts as managed from now on.
FAKE int fake_cuda_manage(std::uint64_t address) { return mark(address, &Physical::managed); }
// The memory there can be shared as what cudaMalloc gives, as far as its attributes say.
FAKE int fake_cuda_give_ipc(std::uint64_t address) { return mark(address, &Physical::has_ipc); }
FAKE void fake_cuda_refuse_imports(int count) {
  const std::lock_guard lock(mutex);
  refused_imports = count;
}
