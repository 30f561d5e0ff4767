#include "algorithms/packed_trees.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <span>
#include <string>

#include "algorithms/tree_timings.h"
#include "schedule/proof.h"
#include "topology/part.h"

namespace paceline {
namespace {

Problem problem_of(Collective collective, const Topology& topology, int root, std::size_t count, bool in_place) {
  return {.collective = collective,
          .ranks = static_cast<int>(topology.gpus().size()),
          .root = root,
          .count = count,
          .in_place = in_place};
}

void check_proved(const Problem& problem, std::span<const TreePacking> packings, std::size_t chunk) {
  for (const TreeTiming& timing : testing::every_tree_timing) {
    if (timing.overlaps && problem.collective != Collective::all_reduce) continue;
    Schedule schedule(problem, {.chunk = chunk});
    const Status written = write_packed_trees(schedule, packings, timing);
    REQUIRE_MESSAGE(written.ok(), written.message());
    const Status status = prove(schedule);
    CHECK_MESSAGE(status.ok(), status.message());
  }
}

void check_proved(const Problem& problem, const TreePacking& packing, std::size_t chunk) {
  check_proved(problem, std::span(&packing, 1), chunk);
}

// Written for one rank alone, a schedule has that rank's steps and scratch of the whole.
void check_parts(const Problem& problem, const TreePacking& packing) {
  Schedule whole(problem, {.chunk = 7});
  REQUIRE(write_packed_trees(whole, packing).ok());
  for (int rank = 0; rank < problem.ranks; ++rank) {
    Schedule part(problem, {.chunk = 7}, rank);
    REQUIRE(write_packed_trees(part, packing).ok());
    REQUIRE(part.steps(rank).size() == whole.steps(rank).size());
    CHECK(part.scratch_elements(rank) == whole.scratch_elements(rank));
    for (std::size_t i = 0; i < part.steps(rank).size(); ++i) {
      CHECK(part.steps(rank)[i].source.offset == whole.steps(rank)[i].source.offset);
      CHECK(part.steps(rank)[i].target.offset == whole.steps(rank)[i].target.offset);
    }
  }
}

// The time of a schedule, in elements over GB/s, where every message has its GPUs' own link: a link carries one message
// after the other, a rank takes its steps in order, a send waits for nothing but a slot.
double played(Schedule& schedule, const Topology& topology) {
  const int n = schedule.ranks();
  const auto index = [](int i) { return static_cast<std::size_t>(i); };
  std::map<std::pair<int, int>, double> bandwidth;
  for (const Link& link : topology.links()) bandwidth[{link.from, link.to}] += link.bandwidth;
  struct Sent {
    double arrives = 0;
    double taken = -1;
  };
  struct Rank {
    std::size_t next = 0;
    double now = 0;
    std::vector<Sent> sent;
  };
  std::vector<Rank> ranks(index(n));
  std::map<std::pair<int, int>, std::pair<std::vector<std::size_t>, std::size_t>> queues;
  std::map<std::pair<int, int>, double> free_at;
  double end = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < n; ++r) {
      Rank& rank = ranks[index(r)];
      for (const auto steps = schedule.steps(r); rank.next < steps.size(); ++rank.next, moved = true) {
        const Step& step = steps[rank.next];
        if (step.action == Action::copy) continue;
        const int peer = schedule.peers(r, step)[0];
        if (step.action == Action::send) {
          if (rank.sent.size() >= index(capacity(n))) {
            const Sent& oldest = rank.sent[rank.sent.size() - index(capacity(n))];
            if (oldest.taken < 0) break;
            rank.now = std::max(rank.now, oldest.taken);
          }
          const std::pair link{topology.gpus()[index(r)], topology.gpus()[index(peer)]};
          double& free = free_at[link];
          free = std::max(free, rank.now) + static_cast<double>(step.source.count) / bandwidth[link];
          queues[{r, peer}].first.push_back(rank.sent.size());
          rank.sent.push_back({.arrives = free});
          continue;
        }
        auto& [messages, taken] = queues[{peer, r}];
        if (taken == messages.size()) break;
        Sent& message = ranks[index(peer)].sent[messages[taken++]];
        message.taken = rank.now = std::max(rank.now, message.arrives);
        end = std::max(end, rank.now);
      }
    }
  }
  return end;
}

}  // namespace

TEST_CASE("packed trees are proved on every subset of a DGX-1V") {
  for (int set = 1; set < 256; ++set) {
    const std::vector<int> gpus = subset(set);
    INFO("set ", set);
    const Topology topology = part("dgx1-v100", gpus);
    const int root = set % static_cast<int>(gpus.size());
    const bool in_place = set % 2 == 0;
    check_proved(problem_of(Collective::broadcast, topology, root, 1003, in_place), *broadcast_trees(topology, root),
                 gpus.size() == 1 ? SIZE_MAX : 37);
    check_proved(problem_of(Collective::all_gather, topology, 0, 501, in_place), *all_gather_trees(topology), 29);
    check_proved(problem_of(Collective::reduce_scatter, topology, 0, 501, in_place), *reduce_scatter_trees(topology),
                 gpus.size() == 1 ? SIZE_MAX : 31);
    check_proved(problem_of(Collective::all_reduce, topology, 0, 4003, in_place), *all_reduce_trees(topology),
                 gpus.size() == 1 ? SIZE_MAX : 37);
  }
}

TEST_CASE("packed trees are proved through switches and in clusters") {
  for (const char* name : {"dgx-a100", "hgx-h200-x4", "cs-storm-k80", "rx2"}) {
    INFO(name);
    const Topology topology = part(name);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{300}}) {
      check_proved(problem_of(Collective::broadcast, topology, 1, count, false), *broadcast_trees(topology, 1), 16);
      check_proved(problem_of(Collective::all_gather, topology, 0, count, true), *all_gather_trees(topology), 8);
      check_proved(problem_of(Collective::reduce_scatter, topology, 0, count, true), *reduce_scatter_trees(topology),
                   8);
      check_proved(problem_of(Collective::all_reduce, topology, 0, count, false), *all_reduce_trees(topology), 16);
    }
  }
}

TEST_CASE("packed trees are proved where links are unequal both ways") {
  const Topology line = uneven_line();
  for (const std::size_t count : {std::size_t{2}, std::size_t{11}, std::size_t{1000}}) {
    check_proved(problem_of(Collective::reduce_scatter, line, 0, count, false), *reduce_scatter_trees(line), 16);
    check_proved(problem_of(Collective::all_reduce, line, 0, count, true), *all_reduce_trees(line), 16);
  }
}

TEST_CASE("reductions along packed trees are proved on random graphs") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 60; ++trial) {
    INFO("trial ", trial);
    Topology topology;
    const int n = 2 + static_cast<int>(random() % 6);
    for (int i = 0; i < n; ++i) topology.add(VertexKind::gpu, "gpu" + std::to_string(i));
    const auto bandwidth = [&] { return static_cast<double>(1 + random() % 7); };
    for (int a = 0; a < n; ++a) {  // a ring, so that all reach each other
      topology.link(a, (a + 1) % n, LinkKind::nvlink, {bandwidth(), 0});
      for (int b = 0; b < n; ++b)
        if (b != a && b != (a + 1) % n && random() % 3 == 0) topology.link(a, b, LinkKind::nvlink, {bandwidth(), 0});
    }
    const std::size_t count = 1 + random() % 2000;
    const bool in_place = random() % 2 == 0;
    const std::size_t chunk = 8 + random() % 40;
    check_proved(problem_of(Collective::reduce_scatter, topology, 0, count, in_place), *reduce_scatter_trees(topology),
                 chunk);
    check_proved(problem_of(Collective::all_reduce, topology, 0, count, in_place), *all_reduce_trees(topology), chunk);
  }
}

TEST_CASE("a reduce-scatter needs scratch for the chunks under way alone") {
  const Topology topology = part("dgx1-v100");
  for (const std::size_t count : {std::size_t{100'000}, std::size_t{1'000'000}}) {
    Schedule schedule(problem_of(Collective::reduce_scatter, topology, 0, count, true), {.chunk = 1000});
    REQUIRE(write_packed_trees(schedule, *reduce_scatter_trees(topology), {0.1}).ok());
    std::size_t most = 0;
    for (int rank = 0; rank < 8; ++rank) most = std::max(most, schedule.scratch_elements(rank));
    CHECK(most > 0);
    CHECK(most < 200'000);
  }
  Schedule schedule(problem_of(Collective::all_reduce, topology, 0, 100'000, true), {.chunk = 1000});
  REQUIRE(write_packed_trees(schedule, *all_reduce_trees(topology), {0.1}).ok());
  for (int rank = 0; rank < 8; ++rank) CHECK(schedule.scratch_elements(rank) == 0);
}

TEST_CASE("long chunks stay within the parameter and begin at whole vectors") {
  const Topology topology = part("dgx1-v100");
  const auto packing = broadcast_trees(topology, 0);
  Schedule schedule(problem_of(Collective::broadcast, topology, 0, 6'000'000, true), {.chunk = 10'000});
  REQUIRE(write_packed_trees(schedule, *packing).ok());
  CHECK(prove(schedule).ok());
  for (int rank = 0; rank < 8; ++rank)
    for (const Step& step : schedule.steps(rank)) CHECK(std::max(step.source.count, step.target.count) <= 10'000);
}

TEST_CASE("packed trees take the bound's time and 2% more on every subset of a DGX-1V") {
  for (int set = 1; set < 256; ++set) {
    const std::vector<int> gpus = subset(set);
    if (gpus.size() == 1) continue;
    const Topology topology = part("dgx1-v100", gpus);
    if (!topology.of_kind(VertexKind::cpu).empty()) continue;  // GPUs that share links
    INFO("set ", set);
    const int n = static_cast<int>(gpus.size());
    const std::size_t count = 1'000'000'000 / 4;
    Schedule broadcast(problem_of(Collective::broadcast, topology, 0, count, true), {.chunk = 128 << 10});
    REQUIRE(write_packed_trees(broadcast, *broadcast_trees(topology, 0)).ok());
    const double all = static_cast<double>(count);
    const double bound = all / throughput_bounds(topology).broadcast_from[0].gbs();
    CHECK(played(broadcast, topology) <= 1.02 * bound);
    CHECK(played(broadcast, topology) >= bound * (1 - 1e-9));
    Schedule gather(problem_of(Collective::all_gather, topology, 0, count / static_cast<std::size_t>(n), true),
                    {.chunk = 128 << 10});
    REQUIRE(write_packed_trees(gather, *all_gather_trees(topology)).ok());
    CHECK(played(gather, topology) <= 1.02 * all / n / shard_rate(topology).gbs());
  }
}

// As many messages under way as one channel may have are few for the six links of each of eight GPUs.
TEST_CASE("reductions along packed trees take the bound's time and 4% more on every subset of a DGX-1V") {
  for (int set = 1; set < 256; ++set) {
    const std::vector<int> gpus = subset(set);
    if (gpus.size() == 1) continue;
    const Topology topology = part("dgx1-v100", gpus);
    if (!topology.of_kind(VertexKind::cpu).empty()) continue;  // GPUs that share links
    INFO("set ", set);
    const std::size_t block = 1'000'000'000 / 4 / gpus.size();
    const double bound = static_cast<double>(block) / shard_rate(topology, true).gbs();
    Schedule scatter(problem_of(Collective::reduce_scatter, topology, 0, block, true), {.chunk = 128 << 10});
    REQUIRE(write_packed_trees(scatter, *reduce_scatter_trees(topology)).ok());
    CHECK(played(scatter, topology) <= 1.04 * bound);
    CHECK(played(scatter, topology) >= bound * (1 - 1e-9));
    Schedule reduction(problem_of(Collective::all_reduce, topology, 0, block * gpus.size(), true),
                       {.chunk = 128 << 10});
    REQUIRE(write_packed_trees(reduction, *all_reduce_trees(topology)).ok());
    CHECK(played(reduction, topology) <= 1.04 * 2 * bound);
  }
}

TEST_CASE("one rank's part of packed trees is that of the whole") {
  const Topology square = part("dgx1-v100", {0, 1, 2, 3});
  const Topology pairs = part("dgx1-v100", {0, 1, 4, 5});
  check_parts(problem_of(Collective::all_gather, square, 0, 100, false), *all_gather_trees(square));
  check_parts(problem_of(Collective::reduce_scatter, pairs, 0, 100, false), *reduce_scatter_trees(pairs));
}

TEST_CASE("trees that do not suit the problem are errors") {
  const Topology topology = part("dgx1-v100", {0, 1, 2, 3});
  const auto trees = broadcast_trees(topology, 2);
  const auto error = [&](const Problem& problem) {
    Schedule schedule(problem, {.chunk = 8});
    return write_packed_trees(schedule, *trees).message();
  };
  CHECK(error(problem_of(Collective::all_to_all, topology, 0, 10, false)) ==
        "packed trees are for broadcast, all-gather, reduce-scatter and all-reduce, not all-to-all");
  CHECK(error(problem_of(Collective::all_reduce, topology, 0, 10, false)) == "1 packings of trees for all-reduce");
  CHECK(error(problem_of(Collective::reduce_scatter, topology, 0, 10, false)) ==
        "trees from their roots for reduce-scatter");
  CHECK(error(problem_of(Collective::all_gather, topology, 0, 10, false)) == "the trees carry 0 of 4 of rank 0's data");
  CHECK(error(problem_of(Collective::broadcast, topology, 1, 10, false)) == "the trees carry 0 of 4 of rank 1's data");
  CHECK(error({.collective = Collective::broadcast, .ranks = 5, .root = 2, .count = 10}) ==
        "a tree of 4 ranks for a collective of 5");
}

}  // namespace paceline
