// When a wait that begins now has to end.
#pragma once

#include <chrono>

#include "bootstrap/session.h"

namespace paceline {

inline Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace paceline
