#include "algorithms/packed_trees.h"

#include <doctest/doctest.h>

#include <map>

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

void check_proved(const Problem& problem, const TreePacking& packing, std::size_t chunk) {
  for (const TreeTiming timing : {TreeTiming{}, {0.1, 1}, {0.2, 2}}) {
    Schedule schedule(problem, {.chunk = chunk});
    const Status written = write_packed_trees(schedule, packing, timing);
    REQUIRE_MESSAGE(written.ok(), written.message());
    const Status status = prove(schedule);
    CHECK_MESSAGE(status.ok(), status.message());
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
  }
}

TEST_CASE("packed trees are proved through switches and in clusters") {
  for (const char* name : {"dgx-a100", "hgx-h200-x4", "cs-storm-k80", "rx2"}) {
    INFO(name);
    const Topology topology = part(name);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{300}}) {
      check_proved(problem_of(Collective::broadcast, topology, 1, count, false), *broadcast_trees(topology, 1), 16);
      check_proved(problem_of(Collective::all_gather, topology, 0, count, true), *all_gather_trees(topology), 8);
    }
  }
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
    CHECK(played(gather, topology) <= 1.02 * all / n / shard_rate(topology).rate.gbs());
  }
}

TEST_CASE("one rank's part of packed trees is that of the whole") {
  const Topology topology = part("dgx1-v100", {0, 1, 2, 3});
  const auto packing = all_gather_trees(topology);
  const Problem problem = problem_of(Collective::all_gather, topology, 0, 100, false);
  Schedule whole(problem, {.chunk = 7});
  REQUIRE(write_packed_trees(whole, *packing).ok());
  for (int rank = 0; rank < 4; ++rank) {
    Schedule part(problem, {.chunk = 7}, rank);
    REQUIRE(write_packed_trees(part, *packing).ok());
    REQUIRE(part.steps(rank).size() == whole.steps(rank).size());
    for (std::size_t i = 0; i < part.steps(rank).size(); ++i) {
      CHECK(part.steps(rank)[i].source.offset == whole.steps(rank)[i].source.offset);
      CHECK(part.steps(rank)[i].target.offset == whole.steps(rank)[i].target.offset);
    }
  }
}

TEST_CASE("trees that do not suit the problem are errors") {
  const Topology topology = part("dgx1-v100", {0, 1, 2, 3});
  const auto trees = broadcast_trees(topology, 2);
  const auto error = [&](const Problem& problem) {
    Schedule schedule(problem, {.chunk = 8});
    return write_packed_trees(schedule, *trees).message();
  };
  CHECK(error(problem_of(Collective::all_reduce, topology, 0, 10, false)) ==
        "packed trees are for broadcast and all-gather, not all-reduce");
  CHECK(error(problem_of(Collective::broadcast, topology, 1, 10, false)) ==
        "the trees give out 0 of 4 of rank 1's data");
  CHECK(error({.collective = Collective::broadcast, .ranks = 5, .root = 2, .count = 10}) ==
        "a tree of 4 ranks for a collective of 5");
}

}  // namespace paceline
