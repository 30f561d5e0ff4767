#include "comm/kernel_watch.h"

#include <chrono>
#include <new>
#include <system_error>

#include "base/log.h"
#include "base/signals_blocked.h"

namespace paceline {

void KernelWaits::look() {
  const auto wait = engine_.long_wait();
  const bool goes_on = wait && wait != last_;  // who waits says so anew
  last_ = wait;
  if (const auto level = told_.notice(goes_on ? wait->seconds : 0))
    log(*level, rank_,
        "a kernel has waited {:.0f} s for rank {} to come to {} on its GPU; gives up after {:g} s (PACELINE_TIMEOUT)",
        wait->seconds, wait->rank, title(wait->call), timeout_);
}

KernelWatch::KernelWatch(const cuda::GpuEngine& engine, int rank, double timeout) : waits_(engine, rank, timeout) {
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
  }
}

KernelWatch::~KernelWatch() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void KernelWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::seconds(1), [this] { return ends_; })) {
    try {
      waits_.look();
    } catch (const std::bad_alloc&) {  // then nothing is told this time
    }
  }
}

}  // namespace paceline
