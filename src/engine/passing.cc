#include "engine/passing.h"

#include <algorithm>
#include <iterator>

namespace paceline {
namespace {

bool begins_before_end(const auto& each, const Extent& extent) {
  return each.first.first == extent.memory && each.first.second < extent.end;
}

}  // namespace

// The first message that overlaps, or what comes behind.
Passing::Messages::iterator Passing::first_in(const Extent& extent) {
  const auto behind = messages_.lower_bound({extent.memory, extent.begin});
  if (behind == messages_.begin()) return behind;
  const auto before = std::prev(behind);
  return before->first.first == extent.memory && before->second.end > extent.begin ? before : behind;
}

void Passing::reads(const Extent& extent) {
  for (auto each = first_in(extent); each != messages_.end() && begins_before_end(*each, extent); ++each)
    each->second.read = true;
}

void Passing::writes(const Extent& extent) {
  auto each = first_in(extent);
  while (each != messages_.end() && begins_before_end(*each, extent)) {
    const auto& [at, message] = *each;
    const bool whole = extent.begin <= at.second && message.end <= extent.end;
    settle(message, whole);
    each = messages_.erase(each);
  }
}

void Passing::receives(const Extent& extent, int transport, bool streams) {
  if (extent.begin < extent.end)
    messages_[{extent.memory, extent.begin}] = {
        .end = extent.end, .step = lane_.size() - 1, .transport = transport, .streams = streams};
}

void Passing::sends(const Extent& extent, int transport) {
  const auto found = messages_.find({extent.memory, extent.begin});
  if (found == messages_.end()) return reads(extent);
  Message& message = found->second;
  if (message.end != extent.end || message.transport != transport || message.passed_on) return reads(extent);
  const auto number = std::ranges::find_if(free_from_, [&](std::size_t step) { return step <= message.step; });
  if (number == free_from_.end()) return reads(extent);
  *number = lane_.size() - 1;
  message.passed_on = true;
  lane_[message.step].kept = lane_.back().kept = static_cast<std::int16_t>(number - free_from_.begin());
}

void Passing::ends() {
  for (const auto& [at, message] : messages_) settle(message, at.first == scratch_memory);
}

void Passing::settle(const Message& message, bool overwritten) {
  if (!message.passed_on || message.read) return;
  PlanStep& step = lane_[message.step];
  step.unread = overwritten;
  step.streams = message.streams && !overwritten;
}

}  // namespace paceline
