#include "transport/shared_memory_node.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace paceline {

namespace {

double seconds_of(const auto& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("shm: a message between announcement and sleep keeps its receiver awake") {
  Node node(2);
  node[1].announce_sleep();
  CHECK(node.send(0, {1}, pattern(8, 1)) == Attempt::done);
  CHECK(seconds_of([&] { node[1].sleep(10e6); }) < 5);
  CHECK(node.take(1, 0, pattern(8, 1)));
}

TEST_CASE("shm: so does a release the rank that waits for room") {
  Node node(2);
  const Data data = pattern(8, 1);
  CHECK(accepted([&] { return node.send(0, {1}, data); }) == node.layout.cells());
  node[0].announce_sleep();
  CHECK(node.take(1, 0, data));
  CHECK(seconds_of([&] { node[0].sleep(10e6); }) < 5);
  CHECK(node.send(0, {1}, data) == Attempt::done);
}

TEST_CASE("shm: sleep ends by its time") {
  Node node(2);
  node[1].announce_sleep();
  const double slept = seconds_of([&] { node[1].sleep(20'000); });
  CHECK(slept >= 0.019);
  CHECK(slept < 5);
  node[1].announce_sleep();
  CHECK(seconds_of([&] { node[1].sleep(0); }) < 5);
}

TEST_CASE("shm: whoever sleeps is woken, turn by turn") {
  Node node(2);
  constexpr std::uint32_t turns = 200;
  const double seconds = seconds_of([&] {
    // Each sleeps until the other's next message; one wake-up missed costs a hundred seconds.
    const auto play = [&](int me, int other) {
      for (std::uint32_t turn = 0; turn < turns; ++turn) {
        if (turn % 2 == static_cast<std::uint32_t>(me)) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));  // the other mostly sleeps by then
          if (node.send(me, {other}, pattern(8, turn)) != Attempt::done) return false;
          continue;
        }
        const std::byte* data = nullptr;
        const auto look = [&] { return node[me].receive(0, other, sum_of(1), 8, nullptr, &data); };
        // As whoever waits does (engine/wait.cc): a message may have been on its way, its sender not having seen the
        // announcement.
        const auto comes_late = [&] {
          const auto announced = std::chrono::steady_clock::now();
          do {
            if (look() != Attempt::later) return true;
          } while (std::chrono::steady_clock::now() - announced < std::chrono::microseconds(20));
          return false;
        };
        while (look() == Attempt::later) {
          node[me].announce_sleep();
          if (!comes_late() && seconds_of([&] { node[me].sleep(100e6); }) > 50) return false;
        }
        const Data expected = pattern(8, turn);
        if (data == nullptr || !std::equal(expected.begin(), expected.end(), data)) return false;
        node[me].release(0, other);
      }
      return true;
    };
    bool there = false;
    std::thread thread([&] { there = play(1, 0); });
    const bool here = play(0, 1);
    thread.join();
    CHECK(here);
    CHECK(there);
  });
  CHECK(seconds < 90);
}

}  // namespace paceline
