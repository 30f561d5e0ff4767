#include "engine/passing.h"

#include <doctest/doctest.h>

#include <vector>

#include "algorithms/table.h"

namespace paceline {
namespace {

constexpr int output = 0;
constexpr int scratch = 1;

Extent at(std::ptrdiff_t begin, std::ptrdiff_t end, int memory = output) { return {memory, begin, end}; }

// A lane whose steps are told as they are added.
struct Walk {
  std::vector<PlanStep> lane;
  Passing passing{lane};

  std::size_t receive(const Extent& extent, int transport = 0, bool streams = false) {
    lane.emplace_back();
    passing.writes(extent);
    passing.receives(extent, transport, streams);
    return lane.size() - 1;
  }
  std::size_t send(const Extent& extent, int transport = 0) {
    lane.emplace_back();
    passing.sends(extent, transport);
    return lane.size() - 1;
  }
  void read(const Extent& extent) {
    lane.emplace_back();
    passing.reads(extent);
  }
  void write(const Extent& extent) {
    lane.emplace_back();
    passing.writes(extent);
  }
  [[nodiscard]] bool passes(std::size_t received, std::size_t sent) const {
    return lane[received].kept >= 0 && lane[received].kept == lane[sent].kept;
  }
};

}  // namespace

TEST_CASE("passing on: what is received and sent as it is keeps its memory, and a place if it is read there") {
  Walk walk;
  const auto received = walk.receive(at(10, 20));
  const auto sent = walk.send(at(10, 20));
  walk.passing.ends();
  CHECK(walk.passes(received, sent));
  CHECK_FALSE(walk.lane[received].unread);  // it is the output
}

TEST_CASE("passing on: what is overwritten before it is read is not written at all") {
  for (const bool whole : {true, false}) {
    Walk walk;
    const auto received = walk.receive(at(10, 20));
    const auto sent = walk.send(at(10, 20));
    walk.write(whole ? at(5, 20) : at(10, 19));
    CHECK(walk.passes(received, sent));
    CHECK(walk.lane[received].unread == whole);
  }
}

TEST_CASE("passing on: what is in scratch is read by nobody at the end") {
  Walk walk;
  const auto received = walk.receive(at(0, 8, scratch));
  const auto sent = walk.send(at(0, 8, scratch));
  const auto last = walk.receive(at(8, 16, scratch));
  walk.passing.ends();
  CHECK(walk.passes(received, sent));
  CHECK(walk.lane[received].unread);
  CHECK(walk.lane[last].kept == -1);
  CHECK_FALSE(walk.lane[last].unread);
}

TEST_CASE("passing on: what is read otherwise, before or after, is also written") {
  for (const bool before : {true, false}) {
    for (const Extent& extent : {at(10, 20), at(0, 11), at(19, 30), at(12, 13)}) {
      Walk walk;
      const auto received = walk.receive(at(10, 20));
      if (before) walk.read(extent);
      const auto sent = walk.send(at(10, 20));
      if (!before) walk.read(extent);
      walk.write(at(10, 20));
      CHECK(walk.passes(received, sent));
      CHECK_FALSE(walk.lane[received].unread);
    }
  }
  Walk walk;
  const auto received = walk.receive(at(10, 20));
  const auto first = walk.send(at(10, 20));
  const auto second = walk.send(at(10, 20));  // to another rank
  walk.write(at(10, 20));
  CHECK(walk.passes(received, first));
  CHECK(walk.lane[second].kept == -1);
  CHECK_FALSE(walk.lane[received].unread);
}

TEST_CASE("passing on: past the cache goes what is long and read by nobody but whom it is passed on to") {
  for (const bool streams : {true, false}) {
    Walk walk;
    const auto passed = walk.receive(at(10, 20), 0, streams);
    const auto read = walk.receive(at(30, 40), 0, streams);
    const auto overwritten = walk.receive(at(50, 60), 0, streams);
    for (const std::ptrdiff_t begin : {10, 30, 50}) walk.send(at(begin, begin + 10));
    walk.read(at(35, 36));
    const auto last = walk.receive(at(50, 60), 0, streams);
    walk.passing.ends();
    CHECK(walk.lane[passed].streams == streams);
    CHECK_FALSE(walk.lane[read].streams);
    CHECK_FALSE(walk.lane[overwritten].streams);
    CHECK_FALSE(walk.lane[last].streams);  // it is not passed on: for bind() to say
  }
}

TEST_CASE("passing on: only the whole of one message, by the transport that brought it") {
  for (const Extent& extent : {at(10, 19), at(11, 20), at(10, 21), at(0, 20)}) {
    Walk walk;
    const auto received = walk.receive(at(10, 20));
    walk.send(extent);
    CHECK(walk.lane[received].kept == -1);
  }
  Walk walk;
  const auto received = walk.receive(at(10, 20), 1);
  walk.send(at(10, 20), 0);
  CHECK(walk.lane[received].kept == -1);
  // Changed meanwhile.
  const auto changed = walk.receive(at(30, 40));
  walk.write(at(39, 40));
  walk.send(at(30, 40));
  CHECK(walk.lane[changed].kept == -1);
}

TEST_CASE("passing on: so many at once, and then others") {
  Walk walk;
  std::vector<std::size_t> received;
  for (int i = 0; i <= most_kept; ++i) received.push_back(walk.receive(at(10 * i, 10 * i + 10)));
  for (int i = 0; i < most_kept; ++i)
    CHECK(walk.passes(received[static_cast<std::size_t>(i)], walk.send(at(10 * i, 10 * i + 10))));
  CHECK(walk.lane[walk.send(at(10 * most_kept, 10 * most_kept + 10))].kept == -1);
  CHECK(walk.lane[received.back()].kept == -1);
  const auto later = walk.receive(at(0, 10));
  CHECK(walk.passes(later, walk.send(at(0, 10))));
}

TEST_CASE("passing on: a ring touches each element twice") {
  for (const int ranks : {2, 3, 4, 7}) {
    for (const bool in_place : {false, true}) {
      const auto n = static_cast<std::size_t>(ranks);
      const std::size_t count = 64 * n;
      Schedule schedule({.collective = Collective::all_reduce, .ranks = ranks, .count = count, .in_place = in_place},
                        {});
      algorithm_named("ring")->write(schedule);
      Routes routes;
      routes.transport.assign(n, 0);
      const Plan plan = bind(schedule, routes, DataType::float32, Operation::sum);
      std::size_t read = 0;
      std::size_t written = 0;
      for (const PlanStep& step : plan.lanes[0]) {
        if (step.action == Action::send && step.kept < 0) read += step.bytes;
        if (step.action == Action::recv && !step.unread) written += step.bytes;
        if (step.action == Action::recv_reduce) read += step.bytes;
      }
      // Of n blocks one is sent to be folded, n - 1 are folded into, of which n - 2 lie nowhere else, n - 1 received.
      CHECK(read == 4 * count);
      CHECK(written == (n - 1) * 4 * count / n);
      const auto unread = std::ranges::count_if(plan.lanes[0], [](const PlanStep& step) { return step.unread; });
      CHECK(unread == ranks - 2);
    }
  }
}

}  // namespace paceline
