#include "base/of_thread.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <thread>

namespace paceline {
namespace {

std::atomic<int> living{0};
struct Counted {
  Counted() { ++living; }
  ~Counted() { --living; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int number = 0;
};

TEST_CASE("each thread has a value of its own, and a name another one, until the thread ends") {
  std::thread([] {
    of_thread<Counted>().number = 1;
    of_thread<Counted, struct Other>().number = 2;
    std::thread([] { CHECK(of_thread<Counted>().number == 0); }).join();
    CHECK(of_thread<Counted>().number == 1);
    CHECK(living == 2);
  }).join();
  CHECK(living == 0);
}

TEST_CASE("a thread's value is there for the destructors of its thread_local variables, and ends after them") {
  static std::atomic<int> found{-1};
  struct Late {
    ~Late() { found = of_thread<Counted, Late>().number; }
  };
  std::thread([] {
    thread_local Late first;  // ends last
    (void)first;
    of_thread<Counted, Late>().number = 3;
  }).join();
  CHECK(found == 3);
  CHECK(living == 0);
}

TEST_CASE("who asks for a value while it is destroyed gets a new one, which ends, too") {
  static std::atomic<int> found{-1};
  struct Asking {
    ~Asking() {
      if (found == -1) found = of_thread<Asking>().number;
      --living;
    }
    Asking() { ++living; }
    int number = 0;
  };
  std::thread([] { of_thread<Asking>().number = 4; }).join();
  CHECK(found == 0);
  CHECK(living == 0);
}

TEST_CASE("the main thread's value is there in exit handlers") {
  const pid_t child = ::fork();
  if (child == 0) {
    std::atexit([] { ::_exit(living == 1 && of_thread<Counted>().number == 7 ? 0 : 1); });
    of_thread<Counted>().number = 7;
    std::exit(2);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace paceline
