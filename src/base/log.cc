#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string>

#include "base/configuration.h"

namespace paceline {
namespace {

constexpr std::array<const char*, 3> names = {"warn", "info", "debug"};

std::string host() {
  std::array<char, 256> text{};
  gethostname(text.data(), text.size() - 1);
  return text.data();
}

// One write, so that lines of several ranks do not mix. Where nobody reads, a line is lost: a call that logs has a
// deadline, and the program has perhaps no handler for the signal.
void write_whole(const std::string& line) {
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  sigset_t broken, before, pending;
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &broken, &before);
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  if (written < 0 && errno == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    constexpr timespec now{0, 0};
    sigtimedwait(&broken, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

bool logs(LogLevel level) {
  const std::string& wanted = configuration().log;
  const LogLevel limit = wanted == "debug" ? LogLevel::debug : wanted == "info" ? LogLevel::info : LogLevel::warn;
  return level <= limit;
}

void write_log(LogLevel level, int rank, std::string_view message) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  const std::string line = fmt::format(
      "paceline {:02}:{:02}:{:02}.{:03} rank {} {}  {}  {}\n", local.tm_hour, local.tm_min, local.tm_sec, milliseconds,
      rank < 0 ? std::string("-") : std::to_string(rank), host(), names[static_cast<std::size_t>(level)], message);
  write_whole(line);
}

}  // namespace paceline
