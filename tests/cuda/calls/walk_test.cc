// Every algorithm's plan is walked here by a stand-in for the kernels: plain memory stands for the windows, and the
// blocks of all ranks advance step by step, in an order drawn at random, by the rules of walk.h.
#include "cuda/calls/walk.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "base/call.h"
#include "cuda/calls/walk_stand_in.h"

namespace paceline::cuda {
namespace {

std::uint64_t element(const Bytes& bytes, std::size_t size, std::size_t index) {
  std::uint64_t found = 0;
  std::memcpy(&found, bytes.data() + index * size, size);
  return found;
}

// Runs the case on all ranks. False: no block can advance, and not all have ended.
bool run(std::vector<RankStandIn>& ranks, std::mt19937& random) {
  for (RankStandIn& rank : ranks) rank.plan();
  for (;;) {
    bool moved = false;
    bool ended = true;
    // Everyone's blocks once, from a random one on; a lucky one goes on as long as it can.
    const auto begin = random();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      RankStandIn& rank = ranks[(r + begin) % ranks.size()];
      const auto first = random();
      for (std::size_t b = 0; b < rank.blocks(); ++b) {
        const bool lucky = random() % 4 == 0;
        const std::size_t walking = rank.blocks();
        while (walking == rank.blocks() && rank.advance((b + first) % walking)) {
          moved = true;
          if (!lucky) break;
        }
      }
      ended = ended && rank.ended();
    }
    if (ended) return true;
    if (!moved) return false;
  }
}

std::uint64_t expected_at(const WalkCase& c, int rank, std::size_t index) {
  return expected(c, rank, index, value, [&](std::size_t i) {
    std::uint64_t all = 0;
    for (int from = 0; from < c.ranks; ++from) all += value(from, i);
    if (c.op == Operation::premulsum) all *= factor;
    if (c.op == Operation::avg) all /= static_cast<unsigned>(c.ranks);
    return all;
  });
}

// Windows live on, as a communicator's do: chunks are numbered on from case to case.
void check(const WalkCase& c, std::map<int, Windows>& all_windows, std::mt19937& random) {
  const Windows& windows = all_windows.try_emplace(c.ranks, c.ranks).first->second;
  INFO(describe(c));
  std::vector<RankStandIn> ranks;
  ranks.reserve(static_cast<std::size_t>(c.ranks));
  for (int rank = 0; rank < c.ranks; ++rank) ranks.emplace_back(c, rank, windows);
  REQUIRE(run(ranks, random));
  const std::size_t size = size_of(c.type);
  for (int rank = 0; rank < c.ranks; ++rank) {
    const RankStandIn& its = ranks[static_cast<std::size_t>(rank)];
    const std::size_t length = output_elements(problem_of(c), rank);
    const Bytes found(its.result(), its.result() + length * size);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < length; ++i) wrong += element(found, size, i) != expected_at(c, rank, i) ? 1 : 0;
    INFO("rank ", rank);
    REQUIRE(wrong == 0);
    REQUIRE(its.behind_output() == std::byte{0xa5});
  }
}

// Calls visit(case) for every algorithm and collective with these ranks, and a spread of roots, in place and not.
template <class Visit>
void for_algorithms(std::initializer_list<int> numbers_of_ranks, Visit visit) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective which : algorithm.collectives)
      for (const int ranks : numbers_of_ranks)
        for (const bool in_place : {false, true})
          for (const int root : {0, ranks - 1}) {
            if (root != 0 && !is_rooted(which)) continue;
            const WalkCase c{{.which = which, .ranks = ranks, .root = root, .count = 1, .in_place = in_place},
                             &algorithm};
            if (serves(algorithm, problem_of(c))) visit(c);
          }
}

}  // namespace

TEST_CASE("every algorithm's plan gives the collective's result, whatever the blocks' timing") {
  std::map<int, Windows> windows;
  std::mt19937 random(1);
  int number = 0;
  for_algorithms({1, 2, 3, 4, 5, 8, 13, 16}, [&](WalkCase c) {
    if (c.which == Collective::barrier)
      return check({{.which = c.which, .ranks = c.ranks}, c.algorithm, DataType::uint8}, windows, random);
    // Odd sizes, chunks that do and do not divide them, one block and several whose slices are cut elsewhere.
    for (const auto& [count, chunk, blocks] : {std::tuple<std::size_t, std::size_t, int>{1, 0, 32},
                                               {37, 64, 1},
                                               {301, 100, 3},
                                               {1027, 0, 32},
                                               {1300, 256, 5}}) {
      c.count = count;
      c.chunk = chunk;
      c.spreading = {.most_blocks = blocks, .least_share = 16};
      const bool bytes = ++number % 3 == 0;
      c.type = bytes ? DataType::uint8 : DataType::uint32;
      if (reduces(c.which) && !bytes)
        c.op =
            std::array{Operation::sum, Operation::avg, Operation::premulsum}[static_cast<std::size_t>(number) / 3 % 3];
      check(c, windows, random);
      c.op = Operation::sum;
    }
  });
  CHECK(number > 3000);
}

TEST_CASE("long messages fit into the chunks of the windows") {
  std::map<int, Windows> windows;
  std::mt19937 random(2);
  for_algorithms({4, 12}, [&](WalkCase c) {
    if (c.which == Collective::barrier || c.in_place || c.root != 0) return;
    const std::size_t buffers = input_elements(problem_of(c), 0) + output_elements(problem_of(c), 0);
    c.count = 120003 / buffers;  // of one element
    check(c, windows, random);
  });
}

TEST_CASE("a plan is run again and again, and its blocks still wait for each other") {
  std::map<int, Windows> windows;
  std::mt19937 random(3);
  WalkCase c{{.which = Collective::scatter, .ranks = 8, .count = 1003}, algorithm_named("knomial")};
  c.chunk = 4096;
  c.spreading = {.most_blocks = 7, .least_share = 16};
  for (int round = 0; round < 20; ++round) check(c, windows, random);
}

TEST_CASE("folds of every schedule are in the order of the ranks, as device steps have it") {
  for_algorithms({2, 3, 5, 8, 16}, [](const WalkCase& c) {
    Problem problem = problem_of(c);
    problem.count = 100;
    for (int rank = 0; rank < c.ranks; ++rank) {
      Schedule schedule(problem, {.chunk = 7}, rank);
      c.algorithm->write(schedule);
      for (const Step& step : schedule.steps(rank)) {
        if (step.action != Action::recv_reduce) continue;
        const auto peers = schedule.peers(rank, step);
        REQUIRE(std::is_sorted(peers.begin(), peers.end()));
        const auto lower = std::count_if(peers.begin(), peers.end(), [&](int peer) { return peer < rank; });
        REQUIRE((step.own < 0 || step.own == lower));
      }
    }
  });
}

TEST_CASE("blocks do not wait for each other where every step finds what its own block left") {
  std::array<std::byte, 64> memory{};
  Request request;
  request.which = Collective::all_reduce;
  request.send = request.recv = memory.data();
  request.count = 4 << 20;
  for (const char* name : {"ring", "two_shot", "double_tree"}) {
    const auto plan = device_plan(request, 1, 4, {algorithm_named(name)});
    REQUIRE(plan.ok());
    CHECK(plan->walks.front().channels * plan->walks.front().blocks == max_blocks);
    CHECK_FALSE(plan->walks.front().waits);
  }
}

TEST_CASE("what the host does beside the schedule is a walk of its own") {
  std::array<std::byte, 4096> memory{};
  Request request;
  request.which = Collective::all_reduce;
  request.send = request.recv = memory.data();
  request.count = 100;
  const auto stages = [&] {
    const auto plan =
        device_plan(request, 0, 2, {algorithm_named(request.which == Collective::all_to_all ? "direct" : "ring")});
    REQUIRE(plan.ok());
    std::vector<Stage> found;
    for (const Walk& walk : plan->walks) found.push_back(walk.stage);
    return found;
  };
  using Stages = std::vector<Stage>;
  request.type = DataType::float32;
  CHECK(stages() == Stages{Stage::schedule});
  request.op = Operation::avg;
  CHECK(stages() == Stages{Stage::schedule, Stage::divide});
  request.type = DataType::float16;  // scaled before it is added
  CHECK(stages() == Stages{Stage::set_aside, Stage::schedule});
  request.op = Operation::sum;
  request.which = Collective::all_to_all;
  CHECK(stages() == Stages{Stage::set_aside, Stage::schedule});
}

TEST_CASE("a call by an algorithm announces which, and in which chunks") {
  std::array<std::byte, 64> memory{};
  Request request;
  request.which = Collective::all_reduce;
  request.send = request.recv = memory.data();
  request.count = 64;
  const auto task = [&](const char* name, std::size_t chunk_bytes) {
    const auto plan = device_plan(request, 0, 2, {algorithm_named(name), {.chunk = chunk_bytes}});
    REQUIRE(plan.ok());
    return task_of(*plan, plan->walks.front(), request, 0, 2, {});
  };
  const auto what = [&](const char* name) { return task(name, 0).call_what; };
  CHECK(what("ring") != what("one_shot"));
  CHECK((what("ring") & ((1U << algorithm_shift) - 1)) ==
        make_call(request.which, request.type, request.op, 0, 64, 0).what);
  const auto call_in = [&](std::size_t chunk_bytes) { return Call{1, 2, task("ring", chunk_bytes).call_count}; };
  CHECK(call_in(8) == call_in(8));
  CHECK(call_in(8) != call_in(16));
  CHECK(same_but_for_way(call_in(8), call_in(16)));
}

}  // namespace paceline::cuda
