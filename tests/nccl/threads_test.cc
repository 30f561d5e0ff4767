#include "nccl/threads.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <csignal>

using namespace paceline;

namespace {

bool is_blocked(int signal) {
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

}  // namespace

TEST_CASE("the program's signals are not for the door's threads") {
  bool blocked = false;
  std::thread thread = nccl::start_thread([&] { blocked = is_blocked(SIGINT) && is_blocked(SIGUSR1); });
  thread.join();
  CHECK(blocked);
  CHECK(!is_blocked(SIGINT));
}
