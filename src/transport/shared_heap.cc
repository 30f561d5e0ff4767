#include "transport/shared_heap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <string>

#include "base/file_descriptor.h"
#include "base/file_length.h"
#include "base/fork_hold.h"

namespace paceline {
namespace {

struct Allocation {
  std::size_t bytes = 0;
  int descriptor = -1;
  std::uint32_t number = 0;
};

std::mutex mutex;
const HeldWhileForking<mutex> held_while_forking;
std::atomic<std::uint64_t> version{1};  // of the allocations
std::uint32_t numbers = 0;

std::string path_of(pid_t pid, int descriptor) { return fmt::format("/proc/{}/fd/{}", pid, descriptor); }

std::map<std::byte*, Allocation>& allocations() {
  static auto* all = new std::map<std::byte*, Allocation>();
  return *all;
}

}  // namespace

Result<void*> allocate_shared(std::size_t bytes) {
  if (bytes == 0) return Status(Code::invalid_argument, "an allocation of 0 bytes");
  const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
  if (rounded < bytes) return Status::system("allocating shared memory", ENOMEM);
  const int descriptor = FileDescriptor(memfd_create("paceline", MFD_CLOEXEC)).release();
  if (descriptor < 0) return descriptor_error("creating shared memory", errno);
  if (const int error = set_length(descriptor, rounded); error != 0) {
    close(descriptor);
    return descriptor_error(fmt::format("allocating {} bytes of shared memory", bytes), error);
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
  while (!mappings_.empty()) unmap(mappings_.begin()->first);
  for (const Mapping& mapping : read_on_from_) munmap(const_cast<std::byte*>(mapping.data), mapping.bytes);
}

void PeerHeaps::unmap(const Key& key) {
  const auto found = mappings_.find(key);
  if (found == mappings_.end()) return;
  munmap(const_cast<std::byte*>(found->second.data), found->second.bytes);
  mappings_.erase(found);
}

// Those whose descriptors are closed, or have become other files.
std::vector<PeerHeaps::Key> PeerHeaps::given_back_by(pid_t pid) const {
  std::vector<Key> given_back;
  for (auto entry = mappings_.lower_bound({pid, 0}); entry != mappings_.end() && entry->first.first == pid; ++entry) {
    const auto& [key, mapping] = *entry;
    struct stat facts {};
    const bool open = stat(path_of(pid, key.second).c_str(), &facts) == 0;
    if (open ? facts.st_dev != mapping.device || facts.st_ino != mapping.inode : errno == ENOENT)
      given_back.push_back(key);
  }
  return given_back;
}

std::optional<PeerHeaps::Mapping> PeerHeaps::map_new(pid_t pid, const HeapPlace& place) {
  // O_NONBLOCK: the number may be another process here, its descriptor a pipe, for whose writer open() would wait.
  const int descriptor = open(path_of(pid, place.descriptor).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return std::nullopt;
  struct stat facts {};
  void* data = MAP_FAILED;
  if (fstat(descriptor, &facts) == 0 && static_cast<std::uint64_t>(facts.st_size) == place.size)
    data = mmap(nullptr, place.size, PROT_READ, MAP_SHARED, descriptor, 0);
  else
    errno = ESTALE;
  const int error = errno;
  close(descriptor);
  errno = error;
  if (data == MAP_FAILED) return std::nullopt;
  return Mapping{static_cast<const std::byte*>(data), place.size, place.number, facts.st_dev, facts.st_ino};
}

const std::byte* PeerHeaps::map(pid_t pid, const HeapPlace& place) {
  const Key key{pid, place.descriptor};
  if (const auto known = mappings_.find(key); known != mappings_.end()) {
    if (known->second.number == place.number) return known->second.data + place.offset;
    if (read_on_())
      read_on_from_.push_back(known->second);
    else
      munmap(const_cast<std::byte*>(known->second.data), known->second.bytes);
    mappings_.erase(known);
  }
  // Before the new one is opened: that this can be done shows that the process had its descriptors, and did not end.
  const std::vector<Key> given_back = given_back_by(pid);
  const std::optional<Mapping> mapping = map_new(pid, place);
  if (!mapping) return nullptr;
  if (!given_back.empty() && !read_on_())
    for (const Key& old : given_back) unmap(old);
  mappings_[key] = *mapping;
  return mapping->data + place.offset;
}

HeapProbe::HeapProbe(std::uint64_t value) {
  auto memory = allocate_shared(sizeof value);
  if (!memory.ok()) return;
  memory_ = *memory;
  std::memcpy(memory_, &value, sizeof value);
}

HeapProbe::~HeapProbe() {
  if (memory_ != nullptr) (void)free_shared(memory_);
}

std::optional<HeapPlace> HeapProbe::place() const {
  if (memory_ == nullptr) return std::nullopt;
  return OwnHeap().find(static_cast<const std::byte*>(memory_), 1);
}

bool can_map(pid_t pid, const HeapPlace& place, std::uint64_t value) {
  PeerHeaps heaps;
  const std::byte* const found = heaps.map(pid, place);
  return value != 0 && found != nullptr && std::memcmp(found, &value, sizeof value) == 0;
}

}  // namespace paceline
