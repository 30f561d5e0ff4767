// How many threads this process has.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "bootstrap/session.h"

namespace paceline::testing {

// A thread that was joined may still stand in /proc while the kernel ends it; it is marked as exiting by then.
inline int living_threads() {
  constexpr unsigned exiting = 0x4;  // PF_EXITING
  int living = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string stat;
    if (!std::getline(file, stat)) continue;                     // it ended meanwhile
    std::istringstream words(stat.substr(stat.rfind(')') + 1));  // behind the name, which may hold spaces
    std::string skipped;
    for (int field = 3; field < 9; ++field) words >> skipped;
    unsigned flags = 0;
    words >> flags;
    REQUIRE(words.good());
    living += (flags & exiting) == 0 ? 1 : 0;
  }
  return living;
}

// Waits until there are no more than so many: one that is detached ends by itself, after what it does has been seen. A
// sanitizer wants none beside a fork.
inline bool threads_are_back_to(int number, Clock::duration within = std::chrono::seconds(10)) {
  const auto deadline = Clock::now() + within;
  while (living_threads() > number && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return living_threads() <= number;
}

}  // namespace paceline::testing
