#include "base/log.h"

#include <unistd.h>

#include <array>
#include <chrono>
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
  // One write, so that lines of several ranks do not mix.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace paceline
