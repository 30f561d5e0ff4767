#include "transport/single_copy.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "transport/child.h"

namespace paceline {
namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

}  // namespace

TEST_CASE("single copy: another process's memory is read byte for byte") {
  std::vector<std::byte> data(100'003);
  Pipe ready;
  Pipe over;
  Child child([&] {
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
    char ended = 0;
    return ready.put('r') && over.get(&ended);
  });
  char is_ready = 0;
  REQUIRE(ready.get(&is_ready));
  std::vector<std::byte> read(data.size());
  const bool may = read_remote(child.pid(), address_of(data.data()), read.data(), read.size());
  const int error = may ? 0 : errno;
  over.put('o');
  CHECK(child.ended_well());
  if (!may && (error == EPERM || error == ENOSYS)) {
    MESSAGE("this kernel does not allow it");
    return;
  }
  REQUIRE(may);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 256);
  CHECK(read == data);
}

TEST_CASE("single copy: reading nothing succeeds") {
  std::byte nothing{};
  CHECK(read_remote(getpid(), 0, &nothing, 0));
}

TEST_CASE("single copy: memory that is not there is an error") {
  constexpr std::size_t page = 4096;
  auto* pages =
      static_cast<std::byte*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(pages != MAP_FAILED);
  munmap(pages + page, page);
  std::vector<std::byte> read(2 * page);
  CHECK(read_remote(getpid(), address_of(pages), read.data(), page));
  CHECK_FALSE(read_remote(getpid(), address_of(pages + page), read.data(), 1));
  CHECK(errno == EFAULT);
  // What begins well and ends outside is no success either.
  CHECK_FALSE(read_remote(getpid(), address_of(pages + page - 8), read.data(), 16));
  munmap(pages, page);
}

TEST_CASE("single copy: a process that is gone is an error") {
  pid_t pid = 0;
  {
    Child child([] { return true; });
    pid = child.pid();
  }
  std::byte read{};
  CHECK_FALSE(read_remote(pid, address_of(&read), &read, 1));
  CHECK(errno == ESRCH);
}

TEST_CASE("single copy: a probe is read where it lies, and nowhere else") {
  const ReadProbe shown;
  const Probe probe = shown.place();
  CHECK(can_read(getpid(), probe));
  CHECK_FALSE(can_read(getpid(), {probe.address, probe.value + 1}));
  CHECK_FALSE(can_read(getpid(), {8, probe.value}));
}

TEST_CASE("single copy: a probe without a value is none") {
  const std::uint64_t nothing = 0;
  CHECK_FALSE(can_read(getpid(), {address_of(&nothing), nothing}));
}

TEST_CASE("single copy: no two probes are alike, nor a forked child's") {
  const ReadProbe first;
  CHECK(ReadProbe().place().value != first.place().value);
  Pipe shown;
  Child child([&] { return shown.put(ReadProbe().place()); });
  Probe of_child;
  REQUIRE(shown.get(&of_child));
  CHECK(of_child.value != first.place().value);
  CHECK(child.ended_well());
}

}  // namespace paceline
