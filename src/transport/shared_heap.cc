#include "transport/shared_heap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>

#include "base/file_descriptor.h"

namespace paceline {
namespace {

struct Allocation {
  std::size_t bytes = 0;
  int descriptor = -1;
  std::uint32_t number = 0;
};

std::mutex mutex;
std::atomic<std::uint64_t> version{1};  // of the allocations
std::uint32_t numbers = 0;

std::map<std::byte*, Allocation>& allocations() {
  static auto* all = new std::map<std::byte*, Allocation>();
  return *all;
}

}  // namespace

Result<void*> allocate_shared(std::size_t bytes) {
  if (bytes == 0) return Status(Code::invalid_argument, "an allocation of 0 bytes");
  const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
  if (rounded < bytes) return Status::system("allocating shared memory", ENOMEM);
  const int descriptor = memfd_create("paceline", MFD_CLOEXEC);
  if (descriptor < 0) return descriptor_error("creating shared memory", errno);
  if (ftruncate(descriptor, static_cast<off_t>(rounded)) != 0) {
    const int error = errno;
    close(descriptor);
    return Status::system(fmt::format("allocating {} bytes of shared memory", bytes), error);
  }
  void* data = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    close(descriptor);
    return Status::system(fmt::format("mapping {} bytes of shared memory", bytes), error);
  }
  const std::lock_guard lock(mutex);
  allocations()[static_cast<std::byte*>(data)] = {rounded, descriptor, ++numbers};
  version.fetch_add(1, std::memory_order_release);  // orders: the list before its new version
  return data;
}

Status free_shared(void* pointer) {
  const std::lock_guard lock(mutex);
  const auto found = allocations().find(static_cast<std::byte*>(pointer));
  if (found == allocations().end())
    return Status(Code::invalid_argument, "paceMemFree of memory that paceMemAlloc has not given");
  munmap(pointer, found->second.bytes);
  close(found->second.descriptor);
  allocations().erase(found);
  version.fetch_add(1, std::memory_order_release);  // orders: the list before its new version
  return {};
}

std::optional<HeapPlace> OwnHeap::find(const std::byte* data, std::size_t bytes) {
  // Acquire: the list belongs to this version or a later one.
  if (const std::uint64_t now = version.load(std::memory_order_acquire); now != version_) {
    const std::lock_guard lock(mutex);
    ranges_.clear();
    for (const auto& [begin, allocation] : allocations())
      ranges_.push_back({begin, {0, allocation.bytes, allocation.descriptor, allocation.number}});
    version_ = now;
  }
  for (const Range& range : ranges_) {
    if (data < range.begin || data + bytes > range.begin + range.place.size) continue;
    HeapPlace place = range.place;
    place.offset = static_cast<std::uint64_t>(data - range.begin);
    return place;
  }
  return std::nullopt;
}

PeerHeaps::~PeerHeaps() {
  for (auto& [key, mapping] : mappings_) unmap(mapping);
}

void PeerHeaps::unmap(Mapping& mapping) {
  if (mapping.data != nullptr) munmap(const_cast<std::byte*>(mapping.data), mapping.bytes);
  mapping = {};
}

const std::byte* PeerHeaps::map(pid_t pid, const HeapPlace& place) {
  Mapping& mapping = mappings_[{pid, place.descriptor}];
  if (mapping.data == nullptr || mapping.number != place.number) {
    unmap(mapping);
    const std::string path = fmt::format("/proc/{}/fd/{}", pid, place.descriptor);
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return nullptr;
    struct stat facts {};
    void* data = MAP_FAILED;
    if (fstat(descriptor, &facts) == 0 && static_cast<std::uint64_t>(facts.st_size) == place.size)
      data = mmap(nullptr, place.size, PROT_READ, MAP_SHARED, descriptor, 0);
    else
      errno = ESTALE;
    const int error = errno;
    close(descriptor);
    if (data == MAP_FAILED) {
      errno = error;
      return nullptr;
    }
    mapping = {static_cast<const std::byte*>(data), place.size, place.number};
  }
  return mapping.data + place.offset;
}

HeapProbe::HeapProbe() {
  if (auto memory = allocate_shared(1); memory.ok()) memory_ = *memory;
}

HeapProbe::~HeapProbe() {
  if (memory_ != nullptr) (void)free_shared(memory_);
}

std::optional<HeapPlace> HeapProbe::place() const {
  if (memory_ == nullptr) return std::nullopt;
  return OwnHeap().find(static_cast<const std::byte*>(memory_), 1);
}

}  // namespace paceline
