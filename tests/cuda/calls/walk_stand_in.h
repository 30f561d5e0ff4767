// A stand-in for the kernels that walk schedules: plain memory stands for the windows, and the blocks of a rank advance
// step by step, by the rules of walk.h, in the order in which a test asks them to.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/reduction.h"
#include "cuda/calls/case.h"
#include "cuda/calls/device_plan.h"
#include "cuda/calls/walk.h"

namespace paceline::cuda {

using Bytes = std::vector<std::byte>;

// A collective by one algorithm.
struct WalkCase : Case {
  const Algorithm* algorithm = nullptr;
  DataType type = DataType::uint32;
  Operation op = Operation::sum;
  std::size_t chunk = 0;  // bytes
  Spreading spreading = {};
};

inline std::string describe(const WalkCase& c) {
  return std::string(c.algorithm->name) + ": " + std::string(name(c.which)) + " of " + std::to_string(c.count) + " " +
         std::string(name(c.type)) + ", " + std::string(name(c.op)) + ", root " + std::to_string(c.root) + " of " +
         std::to_string(c.ranks) + (c.in_place ? ", in place" : "") + ", chunk " + std::to_string(c.chunk) + ", " +
         std::to_string(c.spreading.most_blocks) + " blocks";
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
inline std::uint64_t value(int rank, std::size_t index) {
  return (static_cast<std::size_t>(rank) * 5 + index * 3 + index / 251) % 11;
}
inline constexpr std::uint64_t factor = 3;

// One rank: its memory, its plan, and its kernel that runs now.
class RankStandIn {
 public:
  RankStandIn(const WalkCase& c, int rank, const Windows& windows) : c_(c), rank_(rank), windows_(windows) {
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
    auto made = device_plan(request_, rank_, c_.ranks, {c_.algorithm, {.chunk = c_.chunk}}, c_.spreading);
    REQUIRE(made.ok());
    plan_ = std::move(*made);
    scratch_.assign(plan_.scratch_bytes, std::byte{0x5a});
    start_walk();
  }

  [[nodiscard]] bool ended() const { return walk_ == plan_.walks.size(); }
  [[nodiscard]] std::size_t blocks() const { return blocks_.size(); }
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
        if (task_.scales) multiply(c_.type, to, to, std::to_array(task_.factor), elements);
        if (task_.divides != 0) divide(c_.type, to, task_.divides, elements);
        break;
    }
  }

  const WalkCase& c_;
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

}  // namespace paceline::cuda
