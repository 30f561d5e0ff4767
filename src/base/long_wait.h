// Waits for another rank that have become so long that they are logged: for who asks for it, and then for everyone.
#pragma once

#include <chrono>
#include <optional>

#include "base/log.h"

namespace paceline {

inline constexpr double notable_wait_s = 5, alarming_wait_s = 60;

// Looks of a wait are about a millisecond apart; with more ranks than CPUs, or where nothing but a deadline asks for
// them, sometimes some 100. Between two so far apart this process did not run: it was stopped or frozen, with its whole
// job perhaps, and nobody has kept it waiting.
inline constexpr std::chrono::seconds not_running{1};

// One wait, or several one after the other.
class LongWait {
 public:
  // It has lasted `seconds`: at which level that is to be logged now. Once for each level of a wait.
  std::optional<LogLevel> notice(double seconds) {
    if (seconds < notable_wait_s) {
      told_.reset();
      return {};
    }
    const LogLevel level = seconds < alarming_wait_s ? LogLevel::info : LogLevel::warn;
    if (told_ && *told_ <= level) return {};
    return told_ = level;
  }

 private:
  std::optional<LogLevel> told_;
};

}  // namespace paceline
