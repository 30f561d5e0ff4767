// Plans by the shape of the call. Finding one neither allocates nor locks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/plan.h"
#include "engine/request.h"

namespace paceline {

struct Shape {
  std::size_t count = 0;
  int root = 0;
  Collective which = Collective::barrier;
  DataType type = DataType::uint8;
  Operation op = Operation::sum;
  bool in_place = false;

  bool operator==(const Shape&) const = default;
};

class PlanCache {
 public:
  explicit PlanCache(std::size_t most_bytes = std::size_t{32} << 20) : most_bytes_(most_bytes) {}

  // Stays where it is until trim() or clear().
  [[nodiscard]] const Plan* find(const Shape& shape) {
    if (last_ == nullptr || last_->first != shape) {
      const auto found = plans_.find(shape);
      if (found == plans_.end()) return nullptr;
      last_ = &*found;
    }
    last_->second.used = ++uses_;
    return &last_->second.plan;
  }
  // For a shape that has none yet.
  const Plan& keep(const Shape& shape, Plan plan) {
    const std::size_t bytes = bytes_of(plan);
    bytes_ += bytes;
    return plans_.try_emplace(shape, Kept{std::move(plan), bytes, ++uses_}).first->second.plan;
  }
  // To be called when no plan is in use: a program whose counts never repeat must not fill the memory. Once there are
  // too many, half of the room goes to those used last, so that this is rare.
  void trim() {
    if (bytes_ > most_bytes_) [[unlikely]]
      drop_least_recently_used();
  }
  // Plans found in an earlier one may be gone. Who goes by a plan and its epoch, without find(), does not count as
  // using it: when there are too many, it is planned once more.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  void clear() {
    ++epoch_;
    last_ = nullptr;
    plans_.clear();
    bytes_ = 0;
  }

 private:
  struct Kept {
    Plan plan;
    std::size_t bytes = 0;
    std::uint64_t used = 0;  // number of its last use
  };
  struct Hash {
    std::size_t operator()(const Shape& shape) const {
      const auto small = static_cast<std::size_t>(shape.which) | static_cast<std::size_t>(shape.type) << 8 |
                         static_cast<std::size_t>(shape.op) << 16 | static_cast<std::size_t>(shape.in_place) << 24 |
                         static_cast<std::size_t>(shape.root) << 32;
      return (shape.count * 0x9e3779b97f4a7c15U) ^ (small * 0xc2b2ae3d27d4eb4fU);
    }
  };

  static std::size_t bytes_of(const Plan& plan) {
    std::size_t bytes = sizeof(Shape) + sizeof(Kept) + plan.peers.size() * sizeof(int);
    for (const auto& lane : plan.lanes) bytes += lane.size() * sizeof(PlanStep);
    return bytes;
  }
  void drop_least_recently_used() {
    std::vector<std::pair<std::uint64_t, Shape>> by_use;
    for (const auto& [shape, kept] : plans_) by_use.emplace_back(kept.used, shape);
    std::ranges::sort(by_use, {}, [](const auto& one) { return one.first; });
    ++epoch_;
    last_ = nullptr;
    for (std::size_t i = 0; i + 1 < by_use.size() && bytes_ > most_bytes_ / 2; ++i) {
      const auto oldest = plans_.find(by_use[i].second);
      bytes_ -= oldest->second.bytes;
      plans_.erase(oldest);
    }
  }

  std::unordered_map<Shape, Kept, Hash> plans_;
  std::pair<const Shape, Kept>* last_ = nullptr;
  std::uint64_t uses_ = 0;
  std::uint64_t epoch_ = 0;
  const std::size_t most_bytes_;
  std::size_t bytes_ = 0;
};

}  // namespace paceline
