// The simulator against the closed forms, each in the case that the form describes: ranks with one full-duplex port
// each around a switch that never blocks. Equal means equal up to rounding.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <chrono>

#include "algorithms/table.h"
#include "schedule/peak_memory.h"
#include "schedule/published_times.h"
#include "schedule/simulator.h"
#include "schedule/star.h"

namespace paceline {
namespace {

using closed_forms::Rates;

constexpr Rates rates{.start = 3, .bandwidth = 12500};
constexpr double rounding = 1e-9;

Machine one_port(const Rates& of) {
  Machine machine;
  machine.start = of.start;
  machine.reduce_bandwidth = of.fold;
  return machine;
}

// The time of an algorithm of the table, in place, on a star. Sizes in bytes.
double simulated(std::string_view algorithm, Collective collective, int n, std::size_t bytes, std::size_t chunk,
                 const Machine& machine, double bandwidth, int radix = 2) {
  Schedule schedule({.collective = collective, .ranks = n, .count = bytes, .in_place = true},
                    {.chunk = chunk, .radix = radix});
  algorithm_named(algorithm)->write(schedule);
  const Topology topology = star(n, bandwidth / 1000);
  WayFinder finder(topology);
  const std::vector<Traffic> traffic{traffic_of(schedule, 1)};
  const auto result = simulate(finder, traffic, machine);
  REQUIRE_MESSAGE(result.ok(), result.status().message());
  for (const double peak : result->link_peaks) CHECK(peak <= 1 + rounding);
  return result->time;
}

double broadcast(std::string_view algorithm, int n, std::size_t bytes, std::size_t chunk = SIZE_MAX, int radix = 2) {
  return simulated(algorithm, Collective::broadcast, n, bytes, chunk, one_port(rates), rates.bandwidth, radix);
}

doctest::Approx equals(double value) { return doctest::Approx(value).epsilon(rounding); }

}  // namespace

TEST_CASE("direct and chain") {
  for (const int n : {2, 3, 8, 33}) {
    INFO(n);
    CHECK(broadcast("direct", n, 1 << 20) == equals(closed_forms::direct(1 << 20, n, rates)));
    CHECK(broadcast("chain", n, 1 << 20) == equals(closed_forms::chain(1 << 20, n, rates)));
  }
}

TEST_CASE("k-nomial on powers of k") {
  for (const auto& [n, k] : {std::pair{2, 2}, {8, 2}, {64, 2}, {9, 3}, {27, 3}, {4, 4}, {16, 4}, {25, 5}}) {
    INFO(fmt::format("{} ranks, k {}", n, k));
    CHECK(broadcast("knomial", n, 100'000, SIZE_MAX, k) == equals(closed_forms::knomial(100'000, n, k, rates)));
  }
}

TEST_CASE("pipelined chain at every chunk, and at the best one") {
  for (const int n : {2, 3, 8, 50}) {
    for (const std::size_t chunk : {1 << 20, 1 << 17, 1 << 14}) {
      INFO(fmt::format("{} ranks, chunk {}", n, chunk));
      CHECK(broadcast("pipelined_chain", n, 1 << 20, chunk) ==
            equals(closed_forms::pipelined_chain(1 << 20, static_cast<double>(chunk), n, rates)));
    }
  }
  // 12 ranks, t_s B = 37,500 bytes: C* = sqrt(M 37500 / 10), which is 75,000 = M / 20 for M = 1,500,000.
  CHECK(closed_forms::pipelined_chain_chunk(1'500'000, 12, rates) == equals(75'000));
  CHECK(broadcast("pipelined_chain", 12, 1'500'000, 75'000) ==
        equals(closed_forms::pipelined_chain_best(1'500'000, 12, rates)));
  for (const std::size_t other : {60'000, 100'000})
    CHECK(broadcast("pipelined_chain", 12, 1'500'000, other) >
          closed_forms::pipelined_chain_best(1'500'000, 12, rates));
}

TEST_CASE("pipelined chain of 1,024 chunks over 1,024 ranks, within 30 s and 4 GiB") {
  const testing::PeakMemory peak;
  const auto began = std::chrono::steady_clock::now();
  CHECK(broadcast("pipelined_chain", 1024, 1 << 22, 1 << 12) ==
        equals(closed_forms::pipelined_chain(1 << 22, 1 << 12, 1024, rates)));
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(30));
  CHECK(peak.bytes() > 0);
  CHECK(peak.bytes() < std::size_t{4} << 30);
}

TEST_CASE("NCCL's ring broadcast in pieces") {
  const Rates no_start{.start = 0, .bandwidth = 5000};
  CHECK(simulated("pipelined_chain", Collective::broadcast, 9, 1 << 20, 1 << 15, one_port(no_start), 5000) ==
        equals(closed_forms::ring_broadcast(1 << 20, 32, 9, no_start)));
}

TEST_CASE("scatter and all-gather") {
  for (const int n : {2, 4, 8, 32}) {
    INFO(n);
    CHECK(broadcast("scatter_ring", n, 1 << 20) == equals(closed_forms::scatter_ring(1 << 20, n, rates)));
    CHECK(broadcast("scatter_doubling", n, 1 << 20) == equals(closed_forms::scatter_doubling(1 << 20, n, rates)));
  }
}

TEST_CASE("ring and Rabenseifner all-reduce") {
  const Rates folding{.start = 3, .bandwidth = 12500, .fold = 40000};
  for (const int n : {2, 4, 8, 32}) {
    INFO(n);
    CHECK(simulated("ring", Collective::all_reduce, n, 1 << 20, SIZE_MAX, one_port(folding), 12500) ==
          equals(closed_forms::ring_all_reduce(1 << 20, n, folding)));
    CHECK(simulated("rabenseifner", Collective::all_reduce, n, 1 << 20, SIZE_MAX, one_port(folding), 12500) ==
          equals(closed_forms::rabenseifner(1 << 20, n, folding)));
  }
}

// An inner rank with two children sends four messages for each pair of chunks, so that is its pace; the trees are
// filled and emptied beside it.
TEST_CASE("double tree: its pace, and at most two levels' messages a level to fill it") {
  CHECK(simulated("double_tree", Collective::all_reduce, 2, 1 << 20, 1 << 17, one_port(rates), rates.bandwidth) ==
        equals(closed_forms::double_tree_pace(1 << 20, 1 << 17, 2, rates)));
  for (const int n : {4, 8, 16, 32}) {
    for (const int chunk : {1 << 17, 1 << 12}) {
      INFO(fmt::format("{} ranks, chunk {}", n, chunk));
      const double time = simulated("double_tree", Collective::all_reduce, n, 1 << 20, static_cast<std::size_t>(chunk),
                                    one_port(rates), rates.bandwidth);
      const double pace = closed_forms::double_tree_pace(1 << 20, chunk, n, rates);
      CHECK(time > pace);
      CHECK(time < pace + 4 * (std::log2(n) + 1) * rates.message(chunk));
    }
  }
}

TEST_CASE("staging in the host") {
  constexpr std::size_t bytes = 1 << 20;
  Schedule schedule({.collective = Collective::broadcast, .ranks = 8, .count = bytes, .in_place = true},
                    {.chunk = bytes / 16});
  algorithm_named("pipelined_chain")->write(schedule);
  const Topology topology = star(8, rates.bandwidth / 1000);
  const double between = closed_forms::pipelined_chain(bytes, bytes / 16.0, 8, rates);
  Machine machine = one_port(rates);
  machine.copy_bandwidth = 6000;
  for (const bool back_up : {false, true}) {
    Traffic traffic = traffic_of(schedule, 1);
    const Program::Act copy{.action = Action::copy, .bytes = static_cast<double>(bytes)};
    traffic.programs[0].acts.insert(traffic.programs[0].acts.begin(), copy);
    for (int rank = 1; back_up && rank < 8; ++rank)
      traffic.programs[static_cast<std::size_t>(rank)].acts.push_back(copy);
    WayFinder finder(topology);
    CHECK(simulate(finder, std::vector{traffic}, machine)->time ==
          equals(closed_forms::staged(bytes, 6000, between, back_up)));
  }
}

namespace {

// Each source copies chunk after chunk into the host and multicasts it.
double streamed(double bytes, int sources, int n, const closed_forms::Multicast& m) {
  std::vector<Traffic> all;
  for (int source = 0; source < sources; ++source) {
    Schedule schedule({.collective = Collective::broadcast, .ranks = n, .root = source, .count = 1, .in_place = true},
                      {});
    algorithm_named("fan_out")->write(schedule);
    Traffic traffic = traffic_of(schedule, 1);
    for (Program& program : traffic.programs) {
      const bool root = program.acts[0].action == Action::send;
      auto acts = program.acts;
      acts[0].bytes = m.chunk;
      if (root) acts.insert(acts.begin(), {.action = Action::copy, .bytes = m.chunk});
      program.acts.clear();
      for (int chunk = 0; chunk < bytes / m.chunk; ++chunk)
        program.acts.insert(program.acts.end(), acts.begin(), acts.end());
    }
    all.push_back(std::move(traffic));
  }
  Machine machine;
  machine.multicast = true;
  machine.copy_bandwidth = m.pcie;
  machine.start = m.chunk / m.datagram * (m.start + m.issue(n));
  const Topology topology = star(n, m.host / 1000);
  WayFinder finder(topology);
  const auto result = simulate(finder, all, machine);
  REQUIRE(result.ok());
  return result->time;
}

}  // namespace

TEST_CASE("streamed multicast, whichever stage is the slower") {
  closed_forms::Multicast m;
  for (const double pcie : {2000.0, 12000.0}) {
    for (const int n : {2, 16, 100}) {
      INFO(fmt::format("{} ranks, PCIe {}", n, pcie));
      m.pcie = pcie;
      CHECK(streamed(2 << 20, 1, n, m) == equals(closed_forms::multicast_streamed(2 << 20, n, m)));
    }
  }
  // Several sources share what the receivers take; the formula is theirs where datagrams cost nothing to issue.
  m.start = 0;
  m.alpha = std::numeric_limits<double>::infinity();
  CHECK(streamed(2 << 20, 4, 9, m) == equals(closed_forms::multicast_sources(2 << 20, 4, 9, m)));
}

TEST_CASE("a message shorter than a chunk is copied and cast once, in whole datagrams") {
  const closed_forms::Multicast m{.chunk = 8192,
                                  .datagram = 4096,
                                  .pcie = 1000,
                                  .host = 2000,
                                  .start = 3,
                                  .alpha = std::numeric_limits<double>::infinity()};
  const auto time = [&](double bytes) { return closed_forms::multicast_streamed(bytes, 16, m); };
  CHECK(time(8) == equals(0.008 + 3 + 0.004));
  CHECK(time(4096) == equals(4.096 + 3 + 2.048));
  CHECK(time(4097) == equals(4.097 + 6 + 2.0485));
  CHECK(time(8192) == equals(8.192 + 6 + 4.096));
  CHECK(time(16384) == equals(8.192 + 10.096 + 10.096));
  for (const double bytes : {8.0, 4096.0, 5000.0, 8192.0, 16384.0})
    CHECK(closed_forms::multicast_sources(bytes, 1, 16, m) == equals(time(bytes)));
}

TEST_CASE("formulas that nothing is simulated for") {
  CHECK(closed_forms::master_all_reduce(1000, 5, {.start = 2, .bandwidth = 10}) == equals(4 + 800));
  CHECK(closed_forms::reduction_server(1000, 8, 4, 20, {.start = 2, .bandwidth = 10}) == equals(4 + 100));
  CHECK(closed_forms::reduction_server(1000, 8, 1, 20, {.start = 2, .bandwidth = 10}) == equals(4 + 400));
  CHECK(closed_forms::knomial_in_chunks(1000, 100, 9, 3, {.start = 2, .bandwidth = 10}) == equals(10 * 2 * 12));
  CHECK(closed_forms::multicast_naive(8192, 1, 1024, {.start = 1}) == equals(2 * (1 + 4)));
}

}  // namespace paceline
