// Log lines, one each, to standard error:  paceline 12:01:07.123 rank 3 node-b  warn  message
//
// Warn: the user should act, and here is how. Info: what was decided and why, once. Debug: for developers.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace paceline {

enum class LogLevel { warn, info, debug };

bool logs(LogLevel level);
void write_log(LogLevel level, int rank, std::string_view message);  // rank -1: not known yet

template <class... Arguments>
void log(LogLevel level, int rank, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (logs(level)) write_log(level, rank, fmt::format(format, std::forward<Arguments>(arguments)...));
}

}  // namespace paceline
