#include "base/until_exit.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "transport/child.h"

namespace paceline {
namespace {

constexpr std::size_t page_bytes = 4096;
char* page = nullptr;
std::atomic<int> turns{0};

void wait_for_turns(int count) {
  for (const int wanted = turns + count; turns < wanted;) std::this_thread::yield();
}

TEST_CASE("what another library's exit handler gives back is not used any more by then, while threads go on") {
  Child child([] {
    void* const mapped = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page = static_cast<char*>(mapped);
    std::atexit([] {
      const bool used = *page != 0;
      ::munmap(page, page_bytes);
      wait_for_turns(1000);
      ::_exit(used ? 0 : 1);
    });
    UntilExit::begin();
    std::thread([] {
      for (;; ++turns) UntilExit::run([] { *page = 1; });
    }).detach();
    wait_for_turns(1000);
    std::exit(2);
    return false;
  });
  CHECK(child.ended_well());
}

}  // namespace
}  // namespace paceline
