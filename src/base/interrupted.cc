#include "base/interrupted.h"

#include <unistd.h>

#include <atomic>

namespace paceline {
namespace {

std::atomic<int (*)()> asked{nullptr};

}  // namespace

void ask_when_waiting(int (*interrupted)()) { asked.store(interrupted, std::memory_order_release); }

bool interrupted() {
  // Acquire: what the function needs was there before it was given.
  int (*const ask)() = asked.load(std::memory_order_acquire);
  if (ask == nullptr || ::gettid() != ::getpid()) return false;
  static bool asking = false;  // of one thread: calls of the handler itself ask nothing
  if (asking) return false;
  asking = true;
  const bool answer = ask() != 0;
  asking = false;
  return answer;
}

}  // namespace paceline
