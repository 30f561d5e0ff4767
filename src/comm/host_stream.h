// A host stream: a queue of calls that a thread of its own runs in order.
//
// A forked child has the queue without the thread: nothing runs there and nothing waits; the functions that return a
// Status say so. It must not destroy its copy, whose thread cannot be joined, but leave it alone.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/origin.h"
#include "base/status.h"

namespace paceline {

class HostStream {
 public:
  HostStream();
  ~HostStream();  // runs what is queued to its end first
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  [[nodiscard]] bool in_child() const { return !origin_.is_here(); }
  static Status no_thread();  // what is said there

  void push(std::function<Status()> work);
  // Wait until all that was queued before has ended; the first error of it since the last synchronize.
  Status synchronize();
  // in_progress while anything is queued or running, else as synchronize().
  Status query();
  // How many calls were pushed so far.
  std::uint64_t mark();
  // Wait until the first `mark` calls have ended, at most `seconds` (negative: without limit); in_progress when the
  // time is up, else the first error among them, which stays for synchronize(). invalid_argument: no so many were
  // pushed, or NaN seconds.
  Status wait(std::uint64_t mark, double seconds);
  // How call number `number` ended, counted from 1; in_progress if it has not. Ok after a synchronize that told it.
  Status result(std::uint64_t number);

 private:
  // Calls first..last, one after another, ended with this error: those of a communicator that has failed all do.
  struct Failure {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    Status status;
  };

  void run();
  // wait() without its errors: whether the calls have ended in time.
  bool await(std::unique_lock<std::mutex>& lock, std::uint64_t mark, double seconds);
  void note(Status status);
  Status take_error(std::uint64_t mark);

  const Origin origin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<Status()>> work_;
  bool running_ = false;
  bool ending_ = false;
  std::uint64_t pushed_ = 0;
  std::uint64_t ended_ = 0;
  std::vector<Failure> failures_;  // since the last synchronize, in order
  std::thread thread_;
};

}  // namespace paceline
