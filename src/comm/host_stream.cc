#include "comm/host_stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/signals_blocked.h"

namespace paceline {

HostStream::HostStream() {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status HostStream::no_thread() {
  return Status(Code::invalid_usage,
                "the stream's thread is in the process that forked this one: a forked child can only destroy streams");
}

void HostStream::push(std::function<Status()> work) {
  if (in_child()) return;  // also because the mutex may be the thread's for ever
  {
    const std::lock_guard lock(mutex_);
    // A place for the error of each, here where a lack of memory can be told: the stream's thread takes no exception.
    const std::size_t places = failures_.size() + work_.size() + (running_ ? 2 : 1);
    if (places > failures_.capacity()) failures_.reserve(2 * places);
    work_.push_back(std::move(work));
    ++pushed_;
  }
  changed_.notify_all();
}

Status HostStream::take_error(std::uint64_t mark) {
  if (failures_.empty() || failures_.front().first > mark) return {};
  Status first = failures_.front().status;
  std::erase_if(failures_, [&](const Failure& one) { return one.last <= mark; });
  if (!failures_.empty()) failures_.front().first = std::max(failures_.front().first, mark + 1);
  return first;
}

void HostStream::note(Status status) {
  if (status.ok()) return;
  Failure* const before = failures_.empty() ? nullptr : &failures_.back();
  if (before != nullptr && before->last + 1 == ended_ && before->status.code() == status.code() &&
      before->status.message() == status.message())
    before->last = ended_;
  else
    failures_.push_back({ended_, ended_, std::move(status)});
}

bool HostStream::await(std::unique_lock<std::mutex>& lock, std::uint64_t mark, double seconds) {
  const auto reached = [&] { return ended_ >= mark; };
  if (seconds >= 0)  // A day is as good as any longer time, and no clock overflows.
    return changed_.wait_for(lock, std::chrono::duration<double>(std::min(seconds, 86400.0)), reached);
  changed_.wait(lock, reached);
  return true;
}

Status HostStream::synchronize() {
  if (in_child()) return no_thread();
  std::unique_lock lock(mutex_);
  const std::uint64_t mark = pushed_;
  await(lock, mark, -1);
  return take_error(mark);
}

Status HostStream::query() {
  if (in_child()) return no_thread();
  const std::lock_guard lock(mutex_);
  if (!work_.empty() || running_) return Status(Code::in_progress, "calls are still queued or running on this stream");
  return take_error(pushed_);
}

std::uint64_t HostStream::mark() {
  if (in_child()) return pushed_;
  const std::lock_guard lock(mutex_);
  return pushed_;
}

Status HostStream::wait(std::uint64_t mark, double seconds) {
  if (in_child()) return no_thread();
  if (std::isnan(seconds)) return Status(Code::invalid_argument, "a wait of NaN seconds");
  std::unique_lock lock(mutex_);
  if (mark > pushed_)
    return Status(Code::invalid_argument, fmt::format("{} calls are no mark of a stream that got {}", mark, pushed_));
  if (!await(lock, mark, seconds)) return Status(Code::in_progress, "the calls are still under way");
  return !failures_.empty() && failures_.front().first <= mark ? failures_.front().status : Status();
}

Status HostStream::result(std::uint64_t number) {
  if (in_child()) return no_thread();
  const std::lock_guard lock(mutex_);
  if (ended_ < number) return Status(Code::in_progress, "the call is still under way");
  const auto failure = std::ranges::find_if(failures_, [&](const Failure& one) { return number <= one.last; });
  return failure != failures_.end() && failure->first <= number ? failure->status : Status();
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
    ++ended_;
    note(std::move(status));
    changed_.notify_all();
  }
}

}  // namespace paceline
