#include "comm/host_stream.h"

#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <functional>
#include <latch>
#include <thread>

#include "comm/scarce_memory.h"
#include "transport/child.h"

namespace paceline {
namespace {

Status failure(const char* message) { return Status(Code::remote, message); }

TEST_CASE("a wait ends with the calls up to its mark, while a later one still runs") {
  std::latch go(1);
  HostStream stream;
  stream.push([] { return Status(); });
  const std::uint64_t first = stream.mark();
  stream.push([&] {
    go.wait();
    return Status();
  });
  CHECK(stream.wait(first, -1).ok());
  CHECK(stream.wait(stream.mark(), 0.001).code() == Code::in_progress);
  CHECK(stream.query().code() == Code::in_progress);
  go.count_down();
  CHECK(stream.wait(stream.mark(), 1e300).ok());
}

TEST_CASE("a wait tells the first error up to its mark and leaves it for synchronize") {
  HostStream stream;
  stream.push([] { return Status(); });
  const std::uint64_t before = stream.mark();
  stream.push([] { return failure("first"); });
  stream.push([] { return failure("second"); });
  CHECK(stream.wait(stream.mark(), -1).message() == "first");
  CHECK(stream.wait(before, -1).ok());
  CHECK(stream.synchronize().message() == "first");
  CHECK(stream.synchronize().ok());
}

TEST_CASE("an error is told also where the stream's thread lacks memory") {
  HostStream stream;
  stream.push([] {
    Status lost = failure("lost");
    testing::fail_allocation(1);
    return lost;
  });
  CHECK(stream.synchronize().message() == "lost");
}

TEST_CASE("no wait lasts NaN seconds") {
  HostStream stream;
  CHECK(stream.wait(0, std::nan("")).code() == Code::invalid_argument);
}

TEST_CASE("a synchronize ends with what was queued before it, whatever comes meanwhile") {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::atomic<bool> enough = false;
  std::latch first(1);
  std::function<Status()> endless;
  HostStream stream;
  endless = [&] {
    // So that the queue is never empty.
    if (!enough && std::chrono::steady_clock::now() < deadline) stream.push(endless);
    return failure("a later one");
  };
  stream.push([&] {
    first.wait();
    return failure("first");
  });
  const std::uint64_t mark = stream.mark();
  stream.push(endless);
  first.count_down();
  CHECK(stream.wait(mark, -1).message() == "first");
  CHECK(stream.synchronize().message() == "first");
  CHECK(std::chrono::steady_clock::now() < deadline);
  CHECK(stream.synchronize().message() == "a later one");
  enough = true;
}

TEST_CASE("the program's signals are not for a stream's thread") {
  bool blocked = false;
  HostStream stream;
  stream.push([&] {
    sigset_t mask;
    ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGUSR1) == 1;
    return Status();
  });
  CHECK(stream.synchronize().ok());
  CHECK(blocked);
}

TEST_CASE("each call's own end can be asked for") {
  std::latch go(1);
  HostStream stream;
  for (const char* message : {"", "one", "one", "another", ""})
    stream.push([message] { return *message == 0 ? Status() : failure(message); });
  stream.push([&] {
    go.wait();
    return Status();
  });
  CHECK(stream.wait(5, -1).message() == "one");
  CHECK(stream.result(1).ok());
  CHECK(stream.result(2).message() == "one");
  CHECK(stream.result(3).message() == "one");
  CHECK(stream.result(4).message() == "another");
  CHECK(stream.result(5).ok());
  CHECK(stream.result(6).code() == Code::in_progress);
  go.count_down();
  CHECK(stream.synchronize().message() == "one");
  CHECK(stream.result(3).ok());
  CHECK(stream.result(6).ok());
}

TEST_CASE("in a forked child nothing waits for the stream's thread, which is not there") {
  std::latch begun(1);
  std::latch go(1);
  HostStream stream;
  stream.push([&] {
    begun.count_down();
    go.wait();
    return Status();
  });
  begun.wait();
  Child child([&] {
    stream.push([] { return Status(); });
    return stream.in_child() && stream.wait(stream.mark(), -1).code() == Code::invalid_usage &&
           stream.query().code() == Code::invalid_usage && stream.synchronize().code() == Code::invalid_usage;
  });
  CHECK(child.ended_well());
  CHECK_FALSE(stream.in_child());
  go.count_down();
  CHECK(stream.mark() == 1);
  CHECK(stream.synchronize().ok());
}

}  // namespace
}  // namespace paceline
