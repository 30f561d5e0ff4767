// Memory that other processes of the node can map: what paceMemAlloc gives. A message that lies in it needs no staging:
// its receivers read it where it is.
//
// Each allocation is an anonymous file (memfd); another process of the same user opens it through /proc/PID/fd.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"

namespace paceline {

// Where some bytes lie in an allocation, as another process can find it.
struct HeapPlace {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;        // of the allocation
  std::int32_t descriptor = -1;  // in the allocating process
  std::uint32_t number = 0;      // of the allocation in its process: descriptors are used again, numbers are not
};

// Page-aligned memory of zeros.
Result<void*> allocate_shared(std::size_t bytes);
Status free_shared(void* pointer);

struct GiveBack {
  void operator()(void* shared) const { (void)free_shared(shared); }
};
using SharedCopy = std::unique_ptr<void, GiveBack>;

// This process's allocations as one thread knows them: looking one up takes no lock unless there was a change.
class OwnHeap {
 public:
  std::optional<HeapPlace> find(const std::byte* data, std::size_t bytes);

 private:
  struct Range {
    const std::byte* begin;
    HeapPlace place;
  };
  std::uint64_t version_ = 0;
  std::vector<Range> ranges_;
};

// Other processes' allocations, mapped for reading when first met. What its owner gave back is unmapped when one of
// that process's is first met: it is given back only after the calls that read it, so nobody reads it then. Unless a
// call has failed, which ends for its owner first.
class PeerHeaps {
 public:
  // `read_on`: whether what was given back may still be read here.
  explicit PeerHeaps(std::function<bool()> read_on = [] { return false; }) : read_on_(std::move(read_on)) {}
  ~PeerHeaps();
  PeerHeaps(const PeerHeaps&) = delete;
  PeerHeaps& operator=(const PeerHeaps&) = delete;

  // nullptr with errno where it cannot be mapped.
  const std::byte* map(pid_t pid, const HeapPlace& place);

 private:
  using Key = std::pair<pid_t, std::int32_t>;  // process and descriptor
  struct Mapping {
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::uint32_t number = 0;  // of the allocation
    dev_t device = 0;
    ino_t inode = 0;
  };
  static std::optional<Mapping> map_new(pid_t pid, const HeapPlace& place);
  [[nodiscard]] std::vector<Key> given_back_by(pid_t pid) const;
  void unmap(const Key& key);

  std::function<bool()> read_on_;
  std::map<Key, Mapping> mappings_;
  std::vector<Mapping> read_on_from_;  // whose descriptors are others' now
};

// An allocation that holds a value, for others to try to map.
class HeapProbe {
 public:
  explicit HeapProbe(std::uint64_t value);
  ~HeapProbe();
  HeapProbe(const HeapProbe&) = delete;
  HeapProbe& operator=(const HeapProbe&) = delete;

  // Nothing where this process has no memory to show.
  [[nodiscard]] std::optional<HeapPlace> place() const;

 private:
  void* memory_ = nullptr;
};

// Whether this process can map that one's allocations, and `pid` is the one that showed the probe: the same number may
// be another process here (single_copy.h), or /proc that of another pid namespace. Value 0: no.
bool can_map(pid_t pid, const HeapPlace& place, std::uint64_t value);

}  // namespace paceline
