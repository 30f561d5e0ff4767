// What a lane receives and then sends on as it is: a chain's chunks, a ring's blocks, which may have been folded on the
// way. Where messages are buffers that go from rank to rank (Transport::keep) such a one is not copied to be sent; and
// if nothing else reads it, it is not even copied to where it was received.
//
// A ring all-reduce on n ranks so touches each element twice on each rank instead of three times.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "engine/plan.h"
#include "schedule/extent.h"

namespace paceline {

// Walks a lane while it is made: after a step has been added, what it does is told, and the steps that receive what is
// passed on, and those that pass it on, get their numbers (PlanStep::kept, PlanStep::unread).
class Passing {
 public:
  explicit Passing(std::vector<PlanStep>& lane) : lane_(lane) {}

  void reads(const Extent& extent);
  void writes(const Extent& extent);
  // All of this from one message, which came by this transport. `streams`: past the cache, if nothing reads it there.
  void receives(const Extent& extent, int transport, bool streams);
  void sends(const Extent& extent, int transport);
  // There are no more steps.
  void ends();

 private:
  struct Message {
    std::ptrdiff_t end = 0;
    std::size_t step = 0;
    int transport = 0;
    bool streams = false;
    bool passed_on = false;
    bool read = false;  // also otherwise
  };
  using Messages = std::map<std::pair<int, std::ptrdiff_t>, Message>;  // by where they begin; they do not overlap

  [[nodiscard]] Messages::iterator first_in(const Extent& extent);
  // What is known of a message when it is overwritten, or at the end.
  void settle(const Message& message, bool overwritten);

  std::vector<PlanStep>& lane_;
  Messages messages_;                               // that still are where they were received
  std::array<std::size_t, most_kept> free_from_{};  // by PlanStep::kept: from which step on the number is free
};

}  // namespace paceline
