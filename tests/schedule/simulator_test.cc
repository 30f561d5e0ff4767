#include "schedule/simulator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "algorithms/table.h"
#include "schedule/star.h"
#include "topology/presets.h"

namespace paceline {
namespace {

doctest::Approx equals(double value) { return doctest::Approx(value).epsilon(1e-9); }

// Of messages, one after another, each from a rank to another, of so many bytes.
struct Sent {
  int from;
  int to;
  std::size_t bytes;
};
Schedule schedule_of(int ranks, const std::vector<Sent>& messages) {
  Schedule schedule({.collective = Collective::broadcast, .ranks = ranks, .count = 1 << 20}, {});
  for (const auto& [from, to, bytes] : messages) {
    Step step;
    step.source.count = bytes;
    schedule.append(from, step, std::span(&to, 1));
    step = {};
    step.action = Action::recv;
    step.target.count = bytes;
    schedule.append(to, step, std::span(&from, 1));
  }
  return schedule;
}

Simulation simulated(const Topology& topology, std::vector<Schedule> schedules, const Machine& machine = {},
                     bool with_timeline = false) {
  WayFinder finder(topology);
  std::vector<Traffic> traffic;
  for (Schedule& schedule : schedules) traffic.push_back(traffic_of(schedule, 1));
  auto result = simulate(finder, traffic, machine, with_timeline);
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  return *result;
}

Machine connections() {
  Machine machine;
  machine.ports = Ports::connections;
  return machine;
}

// gpu0 and gpu1 on one switch, gpu2 and gpu3 on another, 10 GB/s each; 4 GB/s between the switches.
Topology dumbbell() {
  Topology topology;
  const int left = topology.add(VertexKind::pcie_switch, "left");
  const int right = topology.add(VertexKind::pcie_switch, "right");
  for (int i = 0; i < 4; ++i)
    topology.connect(topology.add(VertexKind::gpu, "gpu" + std::to_string(i)), i < 2 ? left : right, LinkKind::pcie,
                     {10, 0});
  topology.connect(left, right, LinkKind::pcie, {4, 0});
  return topology;
}

}  // namespace

TEST_CASE("a message takes start, bytes over bandwidth, and latency, which holds up nothing") {
  const Topology topology = star(2, 1, 0.5);  // two links of 0.5 us
  Machine machine;
  machine.start = 3;
  CHECK(simulated(topology, {schedule_of(2, {{0, 1, 2000}})}, machine).time == equals(3 + 2 + 1));
  CHECK(simulated(topology, {schedule_of(2, {{0, 1, 2000}, {0, 1, 4000}})}, machine).time == equals(3 + 2 + 3 + 4 + 1));
}

TEST_CASE("links are full duplex and shared max-min fairly") {
  // 0 -> 2 and 1 -> 3 share the middle (2 GB/s each); 1 -> 0 gets what is left of nobody's link: 10.
  const auto result = simulated(
      dumbbell(), {schedule_of(4, {{0, 2, 8000}, {1, 3, 16000}, {2, 0, 4000}, {1, 0, 10000}})}, connections());
  // Until 4 us 2 GB/s each; then 1 -> 3 has 8000 bytes left for 4 GB/s.
  CHECK(result.time == equals(4 + 2));
  const auto uneven =
      simulated(dumbbell(), {schedule_of(4, {{0, 2, 3000}, {1, 2, 3000}, {3, 2, 7000}})}, connections());
  // gpu2 takes 10 GB/s: 2 + 2 over the middle, 6 from gpu3 until it ends, then the middle stays at 2 + 2.
  CHECK(uneven.time == equals(1.5));
  CHECK(uneven.ends[0] == equals(1.5));
}

TEST_CASE("one port sends one message after the other, connections several") {
  const std::vector<Sent> both{{0, 1, 10000}, {0, 2, 10000}};
  Topology topology;
  for (int i = 0; i < 3; ++i) topology.add(VertexKind::gpu, "gpu" + std::to_string(i));
  for (const int other : {1, 2}) topology.connect(0, other, LinkKind::nvlink, {10, 0});
  CHECK(simulated(topology, {schedule_of(3, both)}).time == equals(2));
  CHECK(simulated(topology, {schedule_of(3, both)}, connections()).time == equals(1));
}

TEST_CASE("a multicast loads each link once") {
  Schedule schedule({.collective = Collective::broadcast, .ranks = 4, .count = 10000, .in_place = true}, {});
  algorithm_named("fan_out")->write(schedule);
  Machine machine;
  machine.multicast = true;
  const auto result = simulated(star(4, 10), {schedule}, machine);
  CHECK(result.time == equals(1));
  CHECK(std::accumulate(result.link_bytes.begin(), result.link_bytes.end(), 0.0) == equals(4 * 10000));
}

TEST_CASE("steps, copies and folds take time of their channel") {
  Schedule schedule({.collective = Collective::reduce, .ranks = 3, .count = 1000}, {});
  schedule.reduce(std::vector<Place>{{0, Buffer::input, 0}, {1, Buffer::input, 0}, {2, Buffer::input, 0}},
                  {0, Buffer::output, 0}, 1000);
  schedule.round();
  schedule.move({0, Buffer::output, 0}, {0, Buffer::scratch, 0}, 500);
  Machine machine;
  machine.step = 0.25;
  machine.reduce_bandwidth = 500;
  machine.copy_bandwidth = 100;
  machine.send_bandwidth = 2000;
  // Both send at once (0.25 + 0.5, then 2 us on the receiver's link), then two folds, then the copy.
  CHECK(simulated(star(3, 1), {schedule}, machine).time == equals(0.75 + 2 + 0.25 + 4 + 0.25 + 5));
}

TEST_CASE("a rank waits for room when capacity messages are under way") {
  // Rank 1 takes 1 us for each message; rank 0 could send much faster.
  std::vector<Sent> messages(20, {0, 1, 1});
  Machine machine;
  machine.take_bandwidth = 1;
  const auto result = simulated(star(2, 1000), {schedule_of(2, messages)}, machine, true);
  int waits = 0;
  for (const Deed& deed : result.timeline) waits += std::string_view(deed.name) == "wait for room";
  CHECK(waits == 20 - capacity(2));
  CHECK(result.time == doctest::Approx(20).epsilon(1e-5));
}

TEST_CASE("stragglers: a slow rank, a slow link") {
  Schedule schedule({.collective = Collective::broadcast, .ranks = 4, .count = 40000, .in_place = true},
                    {.chunk = 1000});
  algorithm_named("pipelined_chain")->write(schedule);
  Machine machine;
  machine.start = 1;
  CHECK(simulated(star(4, 1), {schedule}, machine).time == equals(42 * 2.0));
  machine.slow_gpus[1] = 4;  // its messages start in 4 us
  CHECK(simulated(star(4, 1), {schedule}, machine).time == equals(2 + 40 * 5.0 + 2));
  machine.slow_gpus.clear();
  machine.slow_links[0] = 3;  // gpu0's first link
  CHECK(simulated(star(4, 1), {schedule}, machine).time == equals(40 * 4.0 + 2 * 2));
}

TEST_CASE("several collectives at once, on parts of the GPUs") {
  const Topology topology = dumbbell();
  WayFinder finder(topology);
  Schedule pair = schedule_of(2, {{0, 1, 40000}});
  std::vector<Traffic> traffic{traffic_of(pair, 1, {0, 2}), traffic_of(pair, 1, {1, 3}), traffic_of(pair, 1, {1, 0})};
  traffic[1].begin = 5;
  const auto result = simulate(finder, traffic, connections());
  REQUIRE(result.ok());
  // Alone until 5 us (20000 bytes), then 2 GB/s: 15 us; the second then has 20000 left for 4 GB/s.
  CHECK(result->ends[0] == equals(15));
  CHECK(result->ends[1] == equals(20));
  CHECK(result->ends[2] == equals(4));  // another way
  CHECK(result->time == equals(20));
}

TEST_CASE("of messages that take two ways, each way carries its parts one after the other") {
  Topology topology;
  for (int i = 0; i < 4; ++i) topology.add(VertexKind::gpu, "gpu" + std::to_string(i));
  const int one = topology.add(VertexKind::nvswitch, "one");
  const int other = topology.add(VertexKind::nvswitch, "other");
  for (const int gpu : {0, 1, 2}) topology.connect(gpu, one, LinkKind::nvlink, {1, 0});
  for (const int gpu : {0, 1, 3}) topology.connect(gpu, other, LinkKind::nvlink, {1, 0});
  const auto link = [&](int from, int to) {
    const auto& links = topology.links();
    const auto found =
        std::ranges::find_if(links, [&](const Link& each) { return each.from == from && each.to == to; });
    return static_cast<int>(found - links.begin());
  };
  WayFinder finder(topology);
  finder.set(0, 1, {{{link(0, one), link(one, 1)}, 0.5}, {{link(0, other), link(other, 1)}, 0.5}});
  Schedule two = schedule_of(2, {{0, 1, 2000}, {0, 1, 2000}});
  Schedule disturbance = schedule_of(2, {{0, 1, 1000}});
  std::vector<Traffic> traffic{traffic_of(two, 1), traffic_of(disturbance, 1, {2, 1}),
                               traffic_of(disturbance, 1, {3, 1})};
  traffic[2].begin = 2;
  const auto result = simulate(finder, traffic, connections());
  REQUIRE(result.ok());
  // While the first message's half waits for GPU 2's, the second's other half passes.
  CHECK(result->ends[0] == equals(3));
  CHECK(result->ends[1] == equals(2));
  CHECK(result->ends[2] == equals(3));
}

TEST_CASE("no link is above its capacity, and its bytes are those of the schedule") {
  for (const char* preset_name : {"dgx1-v100", "cs-storm-k80", "hgx-h200", "rx1"}) {
    INFO(preset_name);
    const auto topology = preset(preset_name);
    const int n = static_cast<int>(topology->gpus().size());
    Schedule schedule({.collective = Collective::all_to_all, .ranks = n, .count = 4096}, {.chunk = 1024});
    algorithm_named("direct")->write(schedule);
    const auto result = simulated(*topology, {schedule}, connections());
    for (std::size_t l = 0; l < result.link_peaks.size(); ++l) {
      CHECK(result.link_peaks[l] <= 1 + 1e-9);
      CHECK(result.link_bytes[l] <= topology->links()[l].bandwidth * 1000 * result.time * (1 + 1e-9));
    }
    // Everything that a GPU sends leaves it.
    for (const int gpu : topology->gpus()) {
      double left = 0;
      for (std::size_t l = 0; l < result.link_bytes.size(); ++l)
        if (topology->links()[l].from == gpu) left += result.link_bytes[l];
      CHECK(left == equals((n - 1) * 4096.0));
    }
  }
}

TEST_CASE("ranks that wait for ever and GPUs without a way are errors") {
  const Topology topology = star(2, 1);
  WayFinder finder(topology);
  Schedule schedule({.collective = Collective::broadcast, .ranks = 2, .count = 8}, {});
  const int peer = 0;
  Step step;
  step.action = Action::recv;
  step.target.count = 8;
  schedule.append(1, step, std::span(&peer, 1));
  CHECK(simulate(finder, std::vector{traffic_of(schedule, 1)}, {}).status().message() ==
        "rank 1 waits for ever in step 0 (recv with rank 0)");
  Schedule pair = schedule_of(2, {{0, 1, 1}});
  CHECK(simulate(finder, std::vector{traffic_of(pair, 1, {0, 2})}, {}).status().message() ==
        "rank 1 is on GPU 2: this topology has GPUs 0 to 1");
  Topology apart;
  for (const char* gpu : {"a", "b"}) apart.add(VertexKind::gpu, gpu);
  WayFinder nowhere(apart);
  CHECK(simulate(nowhere, std::vector{traffic_of(pair, 1)}, {}).status().message() ==
        "there is no way from GPU 0 to GPU 1");
  Machine machine;
  machine.slow_gpus[7] = 2;
  CHECK(simulate(finder, std::vector{traffic_of(pair, 1)}, machine).status().message() ==
        "GPU 7 cannot take 2 times as long: there are GPUs 0 to 1");
}

TEST_CASE("the timeline has the form of a real run's trace") {
  const Topology topology = star(2, 1, 0.5);
  WayFinder finder(topology);
  Schedule schedule = schedule_of(2, {{0, 1, 2000}});
  const std::vector<Traffic> traffic{traffic_of(schedule, 1)};
  Machine machine;
  machine.take_bandwidth = 1000;
  const auto result = simulate(finder, traffic, machine, true);
  REQUIRE(result.ok());
  const auto events = nlohmann::json::parse(chrome_trace(result->timeline, traffic));
  CHECK(events.size() == 3);
  const auto event = [&](std::size_t i, const char* name, int rank, int peer, double begin, double time) {
    CHECK(events[i]["name"] == name);
    CHECK(events[i]["ph"] == "X");
    CHECK(events[i]["pid"] == rank);
    CHECK(events[i]["tid"] == 0);
    CHECK(events[i]["args"]["peer"] == peer);
    CHECK(events[i]["args"]["bytes"] == 2000);
    CHECK(events[i]["args"]["call"] == "broadcast #0");
    CHECK(events[i]["ts"].get<double>() == doctest::Approx(begin));
    CHECK(events[i]["dur"].get<double>() == doctest::Approx(time));
  };
  event(0, "send", 0, 1, 0, 2);
  event(1, "wait", 1, 0, 0, 3);
  event(2, "recv", 1, 0, 3, 2);
  CHECK(chrome_trace({}, {}) == "[\n]\n");
}

TEST_CASE("the timeline has copies, and says which messages are folded") {
  const Topology topology = star(2, 1, 0.5);
  WayFinder finder(topology);
  Schedule schedule({.collective = Collective::reduce, .ranks = 2, .count = 2000}, {.chunk = 2000});
  const Place operands[] = {{0, Buffer::input, 0}, {1, Buffer::input, 0}};
  schedule.reduce(operands, {0, Buffer::output, 0}, 2000);
  schedule.move({1, Buffer::input, 0}, {1, Buffer::output, 0}, 2000);
  const std::vector<Traffic> traffic{traffic_of(schedule, 1)};
  Machine machine;
  machine.copy_bandwidth = 500;
  machine.reduce_bandwidth = 250;
  const auto result = simulate(finder, traffic, machine, true);
  REQUIRE(result.ok());
  const auto events = nlohmann::json::parse(chrome_trace(result->timeline, traffic));
  const auto event = [&](const char* name) {
    const auto found = std::ranges::find_if(events, [&](const auto& each) { return each["name"] == name; });
    REQUIRE(found != events.end());
    return *found;
  };
  const auto copy = event("copy");
  CHECK(copy["pid"] == 1);
  CHECK(copy["args"]["peer"] == 1);
  CHECK(copy["args"]["bytes"] == 2000);
  CHECK(copy["dur"].get<double>() == doctest::Approx(4));
  CHECK_FALSE(copy["args"].contains("reduces"));
  const auto fold = event("recv");
  CHECK(fold["pid"] == 0);
  CHECK(fold["args"]["reduces"] == true);
  CHECK(fold["dur"].get<double>() == doctest::Approx(8));
  CHECK_FALSE(event("send")["args"].contains("reduces"));
}

}  // namespace paceline
