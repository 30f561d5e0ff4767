#include "transport/shared_heap.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "transport/child.h"

namespace paceline {
namespace {

std::byte* allocate(std::size_t bytes) {
  auto memory = allocate_shared(bytes);
  REQUIRE_MESSAGE(memory.ok(), memory.status().message());
  return static_cast<std::byte*>(*memory);
}

void release(void* memory) {
  const Status status = free_shared(memory);
  CHECK_MESSAGE(status.ok(), status.message());
}

long open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

int shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("/memfd:paceline") != std::string::npos;
  return count;
}

}  // namespace

TEST_CASE("shared heap: where files may not be so long it is refused, with the remedy, and the program goes on") {
  Child child([] {
    const rlimit longest{1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_FSIZE, &longest) != 0) return false;
    const auto refused = allocate_shared((1 << 20) + 1);
    return refused.status().message().find("ulimit -f") != std::string::npos && allocate_shared(1 << 20).ok();
  });
  CHECK(child.ended_well());
}

TEST_CASE("shared heap: memory of whole pages, zero, and writable to its end") {
  std::byte* memory = allocate(5000);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0);
  CHECK(std::all_of(memory, memory + 8192, [](std::byte b) { return b == std::byte{0}; }));
  memory[8191] = std::byte{1};
  release(memory);
}

TEST_CASE("shared heap: sizes that cannot be are errors") {
  CHECK(allocate_shared(0).status().code() == Code::invalid_argument);
  CHECK(allocate_shared(SIZE_MAX).status().code() == Code::system);
  CHECK(allocate_shared(SIZE_MAX / 2).status().code() == Code::system);
}

TEST_CASE("shared heap: only what was given is taken back, once") {
  std::byte* memory = allocate(4096);
  CHECK(free_shared(memory + 1).code() == Code::invalid_argument);
  release(memory);
  CHECK(free_shared(memory).code() == Code::invalid_argument);
  CHECK(free_shared(nullptr).code() == Code::invalid_argument);
}

TEST_CASE("shared heap: an allocation is found from any part of it that lies wholly inside") {
  OwnHeap heap;
  std::byte outside{};
  CHECK_FALSE(heap.find(&outside, 1));
  std::byte* memory = allocate(8192);

  const auto whole = heap.find(memory, 8192);
  REQUIRE(whole);
  CHECK(whole->offset == 0);
  CHECK(whole->size == 8192);
  const auto tail = heap.find(memory + 8000, 192);
  REQUIRE(tail);
  CHECK(tail->offset == 8000);
  CHECK(tail->number == whole->number);
  CHECK(tail->descriptor == whole->descriptor);

  CHECK_FALSE(heap.find(memory + 8000, 193));
  CHECK_FALSE(heap.find(memory - 1, 2));
  CHECK_FALSE(heap.find(&outside, 1));
  release(memory);
  CHECK_FALSE(heap.find(memory, 1));
}

TEST_CASE("shared heap: allocations have numbers of their own, also at the same place") {
  OwnHeap heap;
  std::byte* first = allocate(4096);
  const auto before = heap.find(first, 1);
  release(first);
  std::byte* second = allocate(4096);
  const auto after = heap.find(second, 1);
  REQUIRE(before);
  REQUIRE(after);
  CHECK(before->number != after->number);
  release(second);
}

TEST_CASE("shared heap: a mapping shows what its owner writes, and is made once") {
  std::byte* memory = allocate(8192);
  const auto place = OwnHeap().find(memory + 100, 50);
  REQUIRE(place);
  PeerHeaps peers;
  const std::byte* seen = peers.map(getpid(), *place);
  REQUIRE(seen != nullptr);
  CHECK(seen != memory + 100);
  std::memset(memory + 100, 42, 50);
  CHECK(std::memcmp(seen, memory + 100, 50) == 0);

  const long descriptors = open_descriptors();
  HeapPlace elsewhere = *place;
  elsewhere.offset = 5000;
  CHECK(peers.map(getpid(), elsewhere) == seen + 4900);
  CHECK(open_descriptors() == descriptors);
  release(memory);
}

TEST_CASE("shared heap: memory that was given back is mapped until its owner's next, no longer") {
  for (const bool descriptor_is_taken : {false, true}) {
    const int before = shared_mappings();
    std::vector<FileDescriptor> others;  // take the descriptors of what was given back
    {
      PeerHeaps peers;
      std::byte* kept = allocate(4096);
      *kept = std::byte{9};
      const auto place_kept = OwnHeap().find(kept, 1);
      REQUIRE(place_kept);
      const std::byte* seen_kept = peers.map(getpid(), *place_kept);
      for (int i = 1; i <= 5; ++i) {
        std::byte* memory = allocate(4096 * static_cast<std::size_t>(i));
        *memory = static_cast<std::byte>(i);
        const auto place = OwnHeap().find(memory, 1);
        REQUIRE(place);
        const std::byte* seen = peers.map(getpid(), *place);
        REQUIRE(seen != nullptr);
        CHECK(*seen == static_cast<std::byte>(i));
        release(memory);
        CHECK(shared_mappings() == before + 3);  // kept and its mapping, and one more mapping
        if (descriptor_is_taken) others.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
      }
      CHECK(peers.map(getpid(), *place_kept) == seen_kept);
      CHECK(*seen_kept == std::byte{9});
      release(kept);
    }
    CHECK(shared_mappings() == before);
  }
}

TEST_CASE("shared heap: memory that was given back stays mapped while it may be read on") {
  for (const bool descriptor_is_taken : {false, true}) {
    const int before_all = shared_mappings();
    {
      bool read_on = true;
      PeerHeaps peers([&] { return read_on; });
      const auto meet = [&](std::byte* memory) {
        const auto place = OwnHeap().find(memory, 1);
        REQUIRE(place);
        return peers.map(getpid(), *place);
      };
      const int before = shared_mappings();
      std::byte* first = allocate(4096);
      *first = std::byte{7};
      const std::byte* seen = meet(first);
      REQUIRE(seen != nullptr);
      release(first);
      const FileDescriptor other(descriptor_is_taken ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
      std::byte* second = allocate(4096);
      CHECK(meet(second) != nullptr);
      CHECK(*seen == std::byte{7});
      CHECK(shared_mappings() == before + 3);  // the first's, and the second with its own

      read_on = false;
      std::byte* third = allocate(4096);
      CHECK(meet(third) != nullptr);
      // The second and the third with theirs; what another has the descriptor of stays to the end.
      CHECK(shared_mappings() == before + (descriptor_is_taken ? 4 : 5));
      release(second);
      release(third);
    }
    CHECK(shared_mappings() == before_all);
  }
}

TEST_CASE("shared heap: another process maps it") {
  std::byte* memory = allocate(4096);
  memory[77] = std::byte{5};
  const auto place = OwnHeap().find(memory + 77, 1);
  REQUIRE(place);
  const pid_t owner = getpid();
  Child child([&] {
    PeerHeaps peers;
    const std::byte* seen = peers.map(owner, *place);
    return seen != nullptr && *seen == std::byte{5};
  });
  CHECK(child.ended_well());
  release(memory);
}

TEST_CASE("shared heap: what cannot be mapped is an error, and leaves no descriptor open") {
  std::byte* memory = allocate(4096);
  const auto place = OwnHeap().find(memory, 1);
  REQUIRE(place);
  PeerHeaps peers;
  const long descriptors = open_descriptors();

  HeapPlace longer = *place;
  longer.size = 8192;
  longer.number += 1000;
  CHECK(peers.map(getpid(), longer) == nullptr);
  CHECK(errno == ESTALE);

  HeapPlace closed = *place;
  closed.descriptor = 99'999;
  CHECK(peers.map(getpid(), closed) == nullptr);
  CHECK(errno == ENOENT);
  CHECK(open_descriptors() == descriptors);
  release(memory);
}

TEST_CASE("shared heap: memory that is given back is gone, with its descriptor") {
  const long descriptors = open_descriptors();
  std::byte* memory = allocate(4096);
  CHECK(open_descriptors() == descriptors + 1);
  release(memory);
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("shared heap: a probe can be mapped as long as it lives") {
  HeapPlace place;
  {
    const HeapProbe probe(7);
    REQUIRE(probe.place());
    place = *probe.place();
    CHECK(can_map(getpid(), place, 7));
  }
  CHECK_FALSE(can_map(getpid(), place, 7));
}

TEST_CASE("shared heap: a probe of another process's, of the same size and descriptor, is not taken for this one's") {
  const HeapProbe probe(7);
  REQUIRE(probe.place());
  CHECK_FALSE(can_map(getpid(), *probe.place(), 8));
  const HeapProbe without(0);
  REQUIRE(without.place());
  CHECK_FALSE(can_map(getpid(), *without.place(), 0));
}

}  // namespace paceline
