// Waits of a rank on whose CPU another program runs.
#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "engine/fakes.h"

namespace paceline {
namespace {

// Runs it in a thread bound to the CPU on which another one spins.
template <class Body>
void beside_another_program(const Body& body) {
  std::atomic<bool> over{false};
  std::thread bound([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    std::thread other([&] {  // bound, too
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
    body();
    over = true;
    other.join();
  });
  bound.join();
}

// CPU time of this thread.
double cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

}  // namespace

TEST_CASE("wait: a rank bound to a CPU on which another program runs has its own turns, then sleeps") {
  // CPU time between the beginning of a wait and its announcement of sleep, of which a rank that yields has hardly any:
  // the median of 20 waits.
  const auto spent_us = [] {
    std::vector<double> spent;
    beside_another_program([&] {
      for (int wait = 0; wait < 20; ++wait) {
        Waiting rank;
        const double begin = cpu_us();
        rank.transport.on = [&](const std::string& what) {
          if (what == "announce") spent.push_back(cpu_us() - begin);
          if (what == "sleep") rank.transport.deliver(0, 1, bytes_of({5}));
        };
        CHECK(rank.run().ok());
      }
    });
    REQUIRE(spent.size() >= 20);
    std::sort(spent.begin(), spent.end());
    return spent[spent.size() / 2];
  };
  double most = 0;
  for (int turn = 0; turn < 5 && most <= 200; ++turn) most = std::max(most, spent_us());  // what else runs takes of it
  CHECK(most > 200);
}

TEST_CASE("wait: with more ranks than CPUs, a rank beside another program comes to sleep instead of yielding") {
  bool keeps_to_it = false;
  beside_another_program([&] {
    auto yielded = Clock::now();
    for (const auto deadline = yielded + std::chrono::seconds(30); !keeps_to_it && Clock::now() < deadline;) {
      Waiting rank;
      rank.wiring.oversubscribed = true;
      bool slept = false;
      // What is waited for comes when the rank sleeps, or after two turns of the other program; if a trial ends while
      // it looks once more before it sleeps, later.
      rank.transport.on = [&](const std::string& what) {
        const auto& log = rank.transport.log;
        slept |= what == "sleep";
        const bool has_announced = std::ranges::find(log, "announce") != log.end();
        if (slept || log.size() == (has_announced ? 10'000 : 3)) rank.transport.deliver(0, 1, bytes_of({5}));
      };
      const auto begin = Clock::now();
      CHECK(rank.run().ok());
      if (!slept || Clock::now() - begin > std::chrono::milliseconds(50)) yielded = Clock::now();
      keeps_to_it = Clock::now() - yielded > std::chrono::milliseconds(100);  // a trial is shorter
    }
  });
  CHECK(keeps_to_it);
}

}  // namespace paceline
