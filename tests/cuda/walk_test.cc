// Every algorithm's plan is walked here by a stand-in for the kernels: plain memory stands for the windows, and the
// blocks of all ranks advance step by step, in an order drawn at random, by the rules of walk.h.
#include "cuda/walk.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/call.h"
#include "base/reduction.h"
#include "cuda/device_plan.h"

namespace paceline::cuda {
namespace {

using Bytes = std::vector<std::byte>;

struct Case {
  const Algorithm* algorithm = nullptr;
  Collective which = Collective::barrier;
  int ranks = 1;
  int root = 0;
  std::size_t count = 0;
  bool in_place = false;
  DataType type = DataType::uint32;
  Operation op = Operation::sum;
  std::size_t chunk = 0;  // bytes
  Spreading spreading = {};
};

std::string describe(const Case& c) {
  return std::string(c.algorithm->name) + ": " + std::string(name(c.which)) + " of " + std::to_string(c.count) + " " +
         std::string(name(c.type)) + ", " + std::string(name(c.op)) + ", root " + std::to_string(c.root) + " of " +
         std::to_string(c.ranks) + (c.in_place ? ", in place" : "") + ", chunk " + std::to_string(c.chunk) + ", " +
         std::to_string(c.spreading.most_blocks) + " blocks";
}

Problem problem_of(const Case& c) {
  Problem problem;
  problem.collective = c.which;
  problem.ranks = c.ranks;
  problem.root = c.root;
  problem.count = c.count;
  return problem;
}

// The windows of n ranks. Pages that nobody touches cost nothing.
class Windows {
 public:
  explicit Windows(int ranks) {
    for (int rank = 0; rank < ranks; ++rank)
      windows_.emplace_back(static_cast<std::byte*>(std::calloc(WindowLayout::of(ranks).total(ranks), 1)));
  }
  [[nodiscard]] std::byte* of(int rank) const { return windows_[static_cast<std::size_t>(rank)].get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> windows_;
};

// What an element of an input is: small, so that no sum of them wraps.
std::uint64_t value(int rank, std::size_t index) {
  return (static_cast<std::size_t>(rank) * 5 + index * 3 + index / 251) % 11;
}
constexpr std::uint64_t factor = 3;

std::uint64_t element(const Bytes& bytes, std::size_t size, std::size_t index) {
  std::uint64_t found = 0;
  std::memcpy(&found, bytes.data() + index * size, size);
  return found;
}

// One rank: its memory, its plan, and its kernel that runs now.
class RankStandIn {
 public:
  RankStandIn(const Case& c, int rank, const Windows& windows) : c_(c), rank_(rank), windows_(windows) {
    const std::size_t size = size_of(c.type);
    const std::size_t input = input_elements(problem_of(c), rank) * size;
    const std::size_t output = output_elements(problem_of(c), rank) * size;
    const auto shift = input_in_output(problem_of(c), rank) * static_cast<std::ptrdiff_t>(size);
    input_.resize(c.in_place ? 0 : input + 1);
    output_.resize(std::max(output, c.in_place ? input : 0) + 1, std::byte{0xa5});
    request_.which = c.which;
    request_.count = c.count;
    request_.root = c.root;
    request_.type = c.type;
    request_.op = c.op;
    std::memcpy(request_.factor.data(), &factor, sizeof factor);
    request_.recv = output_.data() + (c.in_place ? std::max<std::ptrdiff_t>(-shift, 0) : 0);
    std::byte* const send = c.in_place ? output_.data() + std::max<std::ptrdiff_t>(shift, 0) : input_.data();
    request_.send = send;
    for (std::size_t i = 0; i < input / size; ++i) {
      const std::uint64_t number = value(rank, i);
      std::memcpy(send + i * size, &number, size);
    }
  }

  void plan() {
    auto made = device_plan(request_, rank_, c_.ranks, *c_.algorithm, c_.chunk, c_.spreading);
    REQUIRE(made.ok());
    plan_ = std::move(*made);
    scratch_.assign(plan_.scratch_bytes, std::byte{0x5a});
    start_walk();
  }

  [[nodiscard]] bool ended() const { return walk_ == plan_.walks.size(); }
  [[nodiscard]] std::size_t blocks() const { return blocks_.size(); }
  [[nodiscard]] const DevicePlan& its_plan() const { return plan_; }
  [[nodiscard]] const std::byte* result() const { return request_.recv; }
  [[nodiscard]] std::byte behind_output() const { return output_.back(); }

  // The block takes its next step. False: it cannot.
  bool advance(std::size_t number) {
    Block& block = blocks_[number];
    const std::uint32_t first = task_.begins[block.state.channel];
    if (block.done == task_.begins[block.state.channel + 1] - first) return false;
    const DeviceStep& step = task_.steps[first + block.done];
    const Slice slice = slice_of(step, block.state.block);
    const auto is_there = [](const Awaited& awaited) {
      return awaited.word == nullptr || reached(*awaited.word, awaited.number);
    };
    for (int rank = 0; slice.bytes != 0 && rank < c_.ranks; ++rank)
      if (!is_there(awaited_of_rank(task_, block.state, step, rank))) return false;
    for (std::uint32_t other = 0; other < max_blocks; ++other)
      if (!is_there(awaited_of_block(task_, block.state, step, other))) return false;
    if (slice.bytes != 0) move(block, step, slice);
    for (int rank = 0; slice.bytes != 0 && rank < c_.ranks; ++rank)
      if (has_peer(step, rank)) tell(tell_rank(task_, block.state, step, rank));
    ++block.done;
    if (step.awaited) tell(tell_blocks(task_, block.state, block.done));
    end_walk_if_over();
    return true;
  }

 private:
  struct Block {
    BlockState state{};
    std::uint32_t done = 0;
  };

  static void tell(const Told& told) { *told.word = told.number; }

  void start_walk() {
    blocks_.clear();
    if (ended()) return;
    const Walk& walk = plan_.walks[walk_];
    task_ = task_of(plan_, walk, request_, rank_, c_.ranks, {plan_.steps.data(), progress_.data(), scratch_.data()});
    for (int rank = 0; rank < c_.ranks; ++rank) task_.windows[rank] = windows_.of(rank);
    REQUIRE(walk.channels * walk.blocks <= max_blocks);
    REQUIRE(walk.channels * walk.blocks * walk.lanes <= max_lanes);
    REQUIRE(walk.lanes <= most_lanes);
    blocks_.resize(static_cast<std::size_t>(walk.channels * walk.blocks));
    for (std::size_t number = 0; number < blocks_.size(); ++number) {
      place_block(task_, blocks_[number].state, static_cast<std::uint32_t>(number));
      each_lane([&](int rank, std::uint32_t lane) { begin_lane(task_, blocks_[number].state, rank, lane); });
    }
    end_walk_if_over();
  }

  template <class Visit>
  void each_lane(Visit visit) const {
    for (int rank = 0; rank < c_.ranks; ++rank)
      for (std::uint32_t lane = 0; lane < task_.lanes; ++lane) visit(rank, lane);
  }

  // A kernel ends when all of its blocks have, and the next one starts.
  void end_walk_if_over() {
    for (const Block& block : blocks_)
      if (block.done != task_.begins[block.state.channel + 1] - task_.begins[block.state.channel]) return;
    for (const Block& block : blocks_) {
      each_lane([&](int rank, std::uint32_t lane) { end_lane(task_, block.state, rank, lane); });
      if (task_.progress != nullptr) tell(tell_blocks(task_, block.state, block.done));
    }
    ++walk_;
    start_walk();
  }

  void move(const Block& block, const DeviceStep& step, const Slice& slice) {
    const std::byte* from = task_.buffers[static_cast<std::size_t>(step.source_buffer)] + step.source + slice.offset;
    std::byte* to = task_.buffers[static_cast<std::size_t>(step.target_buffer)] + step.target + slice.offset;
    const std::size_t elements = slice.bytes / size_of(c_.type);
    std::vector<const std::byte*> operands;
    for (int rank = 0; rank < c_.ranks; ++rank) {
      if (has_peer(step, rank)) {
        std::byte* const slot = slot_of(task_, block.state, step, rank);
        if (gives(step)) std::memcpy(slot, from, slice.bytes);
        operands.push_back(slot);
      } else if (step.own && rank == rank_) {
        operands.push_back(from);
      }
    }
    switch (step.action) {
      case Action::send: break;
      case Action::recv: std::memcpy(to, operands.front(), slice.bytes); break;
      case Action::recv_reduce:
        fold_function(c_.type, static_cast<Operation>(task_.op))(to, operands.data(), operands.size(), elements);
        break;
      case Action::copy:
        std::memmove(to, from, slice.bytes);
        if (task_.scales) multiply(c_.type, to, to, task_.factor, elements);
        if (task_.divides != 0) divide(c_.type, to, task_.divides, elements);
        break;
    }
  }

  const Case& c_;
  int rank_;
  const Windows& windows_;
  Bytes input_;
  Bytes output_;
  Bytes scratch_;
  std::array<std::uint32_t, max_blocks> progress_{};
  Request request_;
  DevicePlan plan_;
  std::size_t walk_ = 0;
  WalkTask task_{};
  std::vector<Block> blocks_;
};

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

std::uint64_t expected(const Case& c, int rank, std::size_t i) {
  const std::size_t part = static_cast<std::size_t>(rank) * c.count;
  const auto source = static_cast<int>(i / c.count);
  const auto folded = [&](std::size_t index) {
    std::uint64_t all = 0;
    for (int r = 0; r < c.ranks; ++r) all += value(r, index);
    if (c.op == Operation::premulsum) all *= factor;
    if (c.op == Operation::avg) all /= static_cast<unsigned>(c.ranks);
    return all;
  };
  switch (c.which) {
    case Collective::all_reduce:
    case Collective::reduce: return folded(i);
    case Collective::reduce_scatter: return folded(part + i);
    case Collective::broadcast: return value(c.root, i);
    case Collective::scatter: return value(c.root, part + i);
    case Collective::all_gather:
    case Collective::gather: return value(source, i % c.count);
    default: return value(source, part + i % c.count);
  }
}

// Windows live on, as a communicator's do: chunks are numbered on from case to case.
void check(const Case& c, std::map<int, Windows>& all_windows, std::mt19937& random) {
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
    for (std::size_t i = 0; i < length; ++i) wrong += element(found, size, i) != expected(c, rank, i) ? 1 : 0;
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
            Case c{.algorithm = &algorithm,
                   .which = which,
                   .ranks = ranks,
                   .root = root,
                   .count = 1,
                   .in_place = in_place};
            if (serves(algorithm, problem_of(c))) visit(c);
          }
}

}  // namespace

TEST_CASE("every algorithm's plan gives the collective's result, whatever the blocks' timing") {
  std::map<int, Windows> windows;
  std::mt19937 random(1);
  int number = 0;
  for_algorithms({1, 2, 3, 4, 5, 8, 13, 16}, [&](Case c) {
    if (c.which == Collective::barrier)
      return check({.algorithm = c.algorithm, .which = c.which, .ranks = c.ranks, .type = DataType::uint8}, windows,
                   random);
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
  for_algorithms({4, 12}, [&](Case c) {
    if (c.which == Collective::barrier || c.in_place || c.root != 0) return;
    const std::size_t buffers = input_elements(problem_of(c), 0) + output_elements(problem_of(c), 0);
    c.count = 120003 / buffers;  // of one element
    check(c, windows, random);
  });
}

TEST_CASE("a plan is run again and again, and its blocks still wait for each other") {
  std::map<int, Windows> windows;
  std::mt19937 random(3);
  const Case c{.algorithm = algorithm_named("knomial"),
               .which = Collective::scatter,
               .ranks = 8,
               .count = 1003,
               .chunk = 4096,
               .spreading = {.most_blocks = 7, .least_share = 16}};
  for (int round = 0; round < 20; ++round) check(c, windows, random);
}

TEST_CASE("folds of every schedule are in the order of the ranks, as device steps have it") {
  for_algorithms({2, 3, 5, 8, 16}, [](const Case& c) {
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
    const auto plan = device_plan(request, 1, 4, *algorithm_named(name), 0);
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
        device_plan(request, 0, 2, *algorithm_named(request.which == Collective::all_to_all ? "direct" : "ring"), 0);
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

TEST_CASE("a call by an algorithm announces which") {
  std::array<std::byte, 64> memory{};
  Request request;
  request.which = Collective::all_reduce;
  request.send = request.recv = memory.data();
  request.count = 8;
  const auto what = [&](const char* name) {
    const auto plan = device_plan(request, 0, 2, *algorithm_named(name), 0);
    REQUIRE(plan.ok());
    return task_of(*plan, plan->walks.front(), request, 0, 2, {}).call_what;
  };
  CHECK(what("ring") != what("one_shot"));
  CHECK((what("ring") & ((1U << algorithm_shift) - 1)) ==
        make_call(request.which, request.type, request.op, 0, 8, 0).what);
}

}  // namespace paceline::cuda
