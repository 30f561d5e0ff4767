#include "base/origin.h"

#include <pthread.h>

namespace paceline {

std::atomic<std::uint64_t> Origin::forks{0};

// Relaxed: a process's count changes at its birth alone, while it has one thread.
Origin::Origin() {
  [[maybe_unused]] static const bool watching =
      ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }) == 0;
  forks_ = forks.load(std::memory_order_relaxed);
}

}  // namespace paceline
