#include "base/until_exit.h"

#include <cstdlib>

#include "base/fork_hold.h"

namespace paceline {

std::mutex UntilExit::mutex;
bool UntilExit::over = false;

void UntilExit::begin() {
  static const HeldWhileForking<mutex> held_while_forking;
  [[maybe_unused]] static const int registered = std::atexit([] {
    const std::lock_guard lock(mutex);
    over = true;
  });
}

}  // namespace paceline
