// Threads that wait for each other: all of them begin their work, or none does.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <latch>
#include <optional>
#include <thread>
#include <vector>

#include "base/signals_blocked.h"

namespace paceline {

// The first thread that could not be started, and why.
struct NotStarted {
  std::size_t thread = 0;
  std::exception_ptr why;
};

// prepare(i), then work(i), on a thread of its own for each i below `count`; returns when all have ended. No work
// begins unless every thread could be started and every prepare() returned true. Neither may throw; what the start of a
// thread throws is returned.
template <class Prepare, class Work>
std::optional<NotStarted> all_or_none(std::size_t count, Prepare prepare, Work work) {
  std::latch all_there(static_cast<std::ptrdiff_t>(count));
  std::atomic<bool> all_can{true};  // relaxed: the latch orders the stores before the loads
  const auto be = [&](std::size_t i) {
    if (!prepare(i)) all_can.store(false, std::memory_order_relaxed);
    all_there.arrive_and_wait();
    if (all_can.load(std::memory_order_relaxed)) work(i);
  };
  std::optional<NotStarted> failed;
  std::vector<std::jthread> threads;
  try {
    threads.reserve(count);  // so that none that was started is lost
    const SignalsBlocked blocked;
    while (threads.size() < count) threads.emplace_back(be, threads.size());
  } catch (...) {
    failed = NotStarted{threads.size(), std::current_exception()};
    all_can.store(false, std::memory_order_relaxed);
    all_there.count_down(static_cast<std::ptrdiff_t>(count - threads.size()));
  }
  threads.clear();  // joins them
  return failed;
}

}  // namespace paceline
