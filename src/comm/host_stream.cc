#include "comm/host_stream.h"

#include <utility>

namespace paceline {

HostStream::HostStream() : thread_([this] { run(); }) {}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostStream::push(std::function<Status()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_all();
}

Status HostStream::take_error() { return std::exchange(error_, Status()); }

Status HostStream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return work_.empty() && !running_; });
  return take_error();
}

Status HostStream::query() {
  const std::lock_guard lock(mutex_);
  if (!work_.empty() || running_) return Status(Code::in_progress, "calls are still queued or running on this stream");
  return take_error();
}

// Every call ends by its communicator's timeout at the latest; so does this.
void HostStream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
    if (work_.empty()) return;
    std::function<Status()> work = std::move(work_.front());
    work_.pop_front();
    running_ = true;
    lock.unlock();
    Status status = work();
    work = nullptr;
    lock.lock();
    running_ = false;
    if (error_.ok()) error_ = std::move(status);
    if (work_.empty()) changed_.notify_all();
  }
}

}  // namespace paceline
