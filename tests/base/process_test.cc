#include "base/process.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace paceline {

TEST_CASE("a process has ended when it is gone, and before its parent has asked how") {
  CHECK_FALSE(has_ended(::getpid()));
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  CHECK_FALSE(has_ended(child));
  ::kill(child, SIGKILL);
  ::siginfo_t how{};
  REQUIRE(::waitid(P_PID, static_cast<::id_t>(child), &how, WEXITED | WNOWAIT) == 0);
  CHECK(has_ended(child));
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(has_ended(child));
}

}  // namespace paceline
