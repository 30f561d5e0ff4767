#include "transport/segment.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "transport/child.h"

namespace paceline {
namespace {

// What a thread's allocations are made of while it looks, (offset, bytes), and how long a piece may be to be done
// before the next signal comes.
struct Allocations {
  std::vector<std::pair<off_t, off_t>> asked;
  off_t longest = std::numeric_limits<off_t>::max();
};
thread_local Allocations* looking = nullptr;

// They end after what main() has made.
std::vector<std::shared_ptr<Segment>> outlive_main;

std::shared_ptr<Segment> make(std::size_t bytes) {
  auto segment = Segment::create(bytes);
  REQUIRE_MESSAGE(segment.ok(), segment.status().message());
  return *segment;
}

bool has_name(const std::string& name) { return std::filesystem::exists("/dev/shm" + name); }

// Names of this process's segments.
long names_of_this_process() {
  const std::string prefix = "paceline-" + std::to_string(getpid()) + "-";
  long count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().filename().string().rfind(prefix, 0) == 0) ++count;
  return count;
}

}  // namespace
}  // namespace paceline

// The library's calls, too. As on a kernel on which signals undo the allocation.
extern "C" int posix_fallocate(int descriptor, off_t begin, off_t bytes) {
  if (paceline::looking != nullptr) {
    paceline::looking->asked.emplace_back(begin, bytes);
    if (bytes > paceline::looking->longest) return EINTR;
  }
  return fallocate(descriptor, 0, begin, bytes) == 0 ? 0 : errno;
}

namespace paceline {

TEST_CASE("segment: new memory is zero, and nobody else's to open") {
  const auto segment = make(10'000);
  CHECK(segment->size() == 10'000);
  CHECK(std::all_of(segment->data(), segment->data() + 10'000, [](std::byte b) { return b == std::byte{0}; }));
  const std::regex name("/paceline-" + std::to_string(getpid()) + "-[0-9a-f]+-[0-9a-f]{16}");
  CHECK(std::regex_match(segment->name(), name));
  struct stat facts {};
  REQUIRE(stat(("/dev/shm" + segment->name()).c_str(), &facts) == 0);
  CHECK((facts.st_mode & 07777) == 0600);
  CHECK(facts.st_size == 10'000);
  CHECK(facts.st_blocks * 512 >= 10'000);  // really there
}

TEST_CASE("segment: ranks of one process share one mapping") {
  const auto segment = make(4096);
  const auto opened = Segment::open(segment->name(), 4096);
  REQUIRE(opened.ok());
  CHECK((*opened)->data() == segment->data());
}

TEST_CASE("segment: the name goes, the memory stays until the last one leaves it") {
  auto segment = make(4096);
  const std::string name = segment->name();
  auto opened = Segment::open(name, 4096);
  REQUIRE(opened.ok());
  CHECK(has_name(name));
  segment->unlink();
  CHECK_FALSE(has_name(name));
  segment->unlink();  // again: nothing
  segment.reset();
  (*opened)->data()[4095] = std::byte{1};
  CHECK((*opened)->data()[4095] == std::byte{1});
}

TEST_CASE("segment: its creator takes the name along") {
  auto segment = make(4096);
  const std::string name = segment->name();
  segment.reset();
  CHECK_FALSE(has_name(name));
  const auto opened = Segment::open(name, 4096);
  CHECK(opened.status().code() == Code::system);
  CHECK(opened.status().detail().system_errno == ENOENT);
}

TEST_CASE("segment: two processes see each other's writing; what a dead one left is taken away") {
  std::array<char, 64> name{};
  Pipe announced;
  Pipe answered;
  Child child([&] {
    auto segment = Segment::create(4096);
    if (!segment.ok()) return false;
    (*segment)->data()[1] = std::byte{11};
    std::array<char, 64> mine{};
    std::strncpy(mine.data(), (*segment)->name().c_str(), mine.size() - 1);
    char answer = 0;
    if (!announced.put(mine) || !answered.get(&answer)) return false;
    _exit((*segment)->data()[2] == std::byte{22} ? 0 : 1);  // without taking the name away
  });
  REQUIRE(announced.get(&name));
  {
    const auto opened = Segment::open(name.data(), 4096);
    REQUIRE_MESSAGE(opened.ok(), opened.status().message());
    CHECK((*opened)->data()[1] == std::byte{11});
    (*opened)->data()[2] = std::byte{22};
  }  // it is not ours
  CHECK(has_name(name.data()));
  Segment::unlink_left_behind();  // it lives
  CHECK(has_name(name.data()));
  answered.put('a');
  CHECK(child.ended_well());
  CHECK(has_name(name.data()));
  const auto another = Segment::create(4096);
  REQUIRE(another.ok());
  CHECK_FALSE(has_name(name.data()));
}

TEST_CASE("segment: a name of another length is not the one announced") {
  const std::string name = "/paceline-test-" + std::to_string(getpid());
  const FileDescriptor file(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600));
  REQUIRE(file.valid());
  REQUIRE(ftruncate(file.get(), 4096) == 0);
  const auto opened = Segment::open(name, 8192);
  CHECK(opened.status().message() == "shared memory " + name + " is not the one that was announced");
  CHECK(Segment::open(name, 4096).ok());
  shm_unlink(name.c_str());
}

TEST_CASE("segment: more than /dev/shm holds is refused, with the remedy, and leaves nothing behind") {
  struct statvfs space {};
  REQUIRE(statvfs("/dev/shm", &space) == 0);
  if (space.f_blocks == 0) return;  // without a limit
  const long before = names_of_this_process();
  const auto refused = Segment::create((space.f_blocks + 1) * space.f_frsize);
  CHECK(refused.status().code() == Code::system);
  const std::string& message = refused.status().message();
  CHECK(message.rfind("/dev/shm is too small: ", 0) == 0);
  CHECK(message.find("PACELINE_STAGING") != std::string::npos);
  // Where the least staging does not fit either, it is no remedy.
  const std::size_t too_much = (space.f_blocks + 1) * space.f_frsize;
  const auto hopeless = Segment::create(too_much, too_much);
  CHECK(hopeless.status().message().find("PACELINE_STAGING") == std::string::npos);
  CHECK(hopeless.status().message().find("PACELINE_TRANSPORT=tcp") != std::string::npos);
  CHECK(names_of_this_process() == before);
}

TEST_CASE("segment: where files may not be so long it is refused, with the remedy, and the program goes on") {
  Child child([] {
    const rlimit longest{1 << 20, 1 << 20};
    const long before = names_of_this_process();
    if (setrlimit(RLIMIT_FSIZE, &longest) != 0) return false;
    const auto refused = Segment::create((1 << 20) + 1);
    return refused.status().message().find("ulimit -f") != std::string::npos && names_of_this_process() == before &&
           Segment::create(1 << 20).ok();
  });
  CHECK(child.ended_well());
}

TEST_CASE("segment: memory is allocated in pieces, and again where a signal came first") {
  using Pieces = std::vector<std::pair<off_t, off_t>>;
  constexpr off_t mib = 1 << 20;
  Allocations undisturbed;
  looking = &undisturbed;
  CHECK(Segment::create(40 * mib + 1).ok());
  CHECK(undisturbed.asked == Pieces{{0, 16 * mib}, {16 * mib, 16 * mib}, {32 * mib, 8 * mib + 1}});

  Allocations disturbed;
  disturbed.longest = 5 * mib;
  looking = &disturbed;
  auto segment = Segment::create(10 * mib);
  looking = nullptr;
  REQUIRE_MESSAGE(segment.ok(), segment.status().message());
  CHECK(disturbed.asked == Pieces{{0, 10 * mib}, {0, 8 * mib}, {0, 4 * mib}, {4 * mib, 4 * mib}, {8 * mib, 2 * mib}});
  struct stat facts {};
  REQUIRE(stat(("/dev/shm" + (*segment)->name()).c_str(), &facts) == 0);
  CHECK(facts.st_blocks * 512 >= 10 * mib);
}

TEST_CASE("segment: some may end with a global object of the program's") {
  std::fflush(nullptr);  // the child's exit() would write it again
  Child child([] {
    mallopt(M_PERTURB, 0xa5);       // what is given back is no data any more
    for (int i = 0; i < 20; ++i) {  // more than malloc keeps as they were
      outlive_main.push_back(make(4096));
      outlive_main.back()->unlink();
    }
    std::exit(0);
    return false;
  });
  CHECK(child.ended_well());
}

}  // namespace paceline
