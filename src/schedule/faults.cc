#include "schedule/faults.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "schedule/extent.h"

namespace paceline {
namespace {

// A stretch of one memory that a channel reads or writes.
struct Touch {
  int memory = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
  int channel = 0;
  bool writes = false;
};

std::size_t length(const Schedule& schedule, int rank, Buffer buffer) {
  switch (buffer) {
    case Buffer::input: return input_elements(schedule.problem(), rank);
    case Buffer::output: return output_elements(schedule.problem(), rank);
    case Buffer::scratch: return schedule.scratch_elements(rank);
  }
  return 0;
}

}  // namespace

std::string fault_of(const Schedule& schedule, int rank, const Step& step) {
  if (step.channel >= max_channels) return fmt::format("there are only {} channels", max_channels);
  const auto peers = schedule.peers(rank, step);
  for (const int peer : peers) {
    if (peer < 0 || peer >= schedule.ranks()) return fmt::format("there is no rank {}", peer);
    if (peer == rank) return "a rank sends to itself";
  }
  const bool reads = step.reads();
  const bool writes = step.writes();
  switch (step.action) {
    case Action::send:
      if (peers.empty()) return "the message is for nobody";
      if (step.to_all && peers.size() != static_cast<std::size_t>(schedule.ranks() - 1))
        return fmt::format("a message to all ranks is for {} of {}", peers.size(), schedule.ranks() - 1);
      for (std::size_t i = 0; i < peers.size(); ++i)
        if (std::find(peers.begin(), peers.begin() + static_cast<std::ptrdiff_t>(i), peers[i]) !=
            peers.begin() + static_cast<std::ptrdiff_t>(i))
          return fmt::format("rank {} gets the message twice", peers[i]);
      break;
    case Action::recv:
      if (peers.size() != 1) return "a message comes from one rank";
      break;
    case Action::recv_reduce: {
      std::vector<int> operands(peers.begin(), peers.end());
      if (step.own > static_cast<int>(peers.size())) return "the local operand comes after the last";
      if (step.own >= 0) operands.insert(operands.begin() + step.own, rank);
      if (operands.empty()) return "there is nothing to fold";
      for (std::size_t i = 1; i < operands.size(); ++i)
        if (operands[i - 1] >= operands[i]) return "the operands are not in the order of ranks";
      break;
    }
    case Action::copy:
      if (!peers.empty()) return "a copy has no peers";
      break;
  }
  if (step.action != Action::recv_reduce && step.own >= 0) return "only a fold has a local operand";
  if (reads && writes && step.source.count != step.target.count) return "the lengths of source and target differ";
  if (writes && step.target.buffer == Buffer::input) return "the input is written";
  for (const Region* region : {reads ? &step.source : nullptr, writes ? &step.target : nullptr}) {
    if (region == nullptr) continue;
    if (region->count == 0) return "the step moves nothing";
    if (region->count > schedule.parameters().chunk)
      return fmt::format("{} elements are more than the chunk of {}", region->count, schedule.parameters().chunk);
    const std::size_t size = length(schedule, rank, region->buffer);
    if (region->count > size || region->offset > size - region->count) {
      constexpr std::array names{"input", "output", "scratch"};
      return fmt::format("elements [{}, {}) lie outside of the {} of {} elements", region->offset,
                         region->offset + region->count, names[static_cast<std::size_t>(region->buffer)], size);
    }
  }
  if (reads && writes) {  // engines copy as memcpy does
    const Location source = locate(schedule.problem(), rank, step.source.buffer, step.source.offset);
    const Location target = locate(schedule.problem(), rank, step.target.buffer, step.target.offset);
    const std::size_t apart = std::max(source.offset, target.offset) - std::min(source.offset, target.offset);
    if (source.memory == target.memory && apart > 0 && apart < step.target.count)
      return "what it reads and what it writes overlap";
  }
  return "";
}

std::string fault_of_channels(Schedule& schedule, int rank) {
  if (schedule.channels() == 1) return "";
  std::vector<Touch> touches;
  for (const Step& step : schedule.steps(rank)) {
    const auto touch = [&](const Region& region, bool writes) {
      const auto [memory, offset] = locate(schedule.problem(), rank, region.buffer, region.offset);
      touches.push_back({memory, offset, offset + region.count, step.channel, writes});
    };
    if (step.reads()) touch(step.source, false);
    if (step.writes()) touch(step.target, true);
  }
  std::sort(touches.begin(), touches.end(),
            [](const Touch& a, const Touch& b) { return std::pair(a.memory, a.begin) < std::pair(b.memory, b.begin); });
  // How far the touches so far reach, by channel and by whether they write.
  std::array<std::array<std::size_t, 2>, max_channels> reach{};
  for (std::size_t i = 0; i < touches.size(); ++i) {
    const Touch& touch = touches[i];
    if (i == 0 || touches[i - 1].memory != touch.memory) reach = {};
    for (int channel = 0; channel < max_channels; ++channel) {
      const auto [read_to, written_to] = reach[static_cast<std::size_t>(channel)];
      if (channel != touch.channel && touch.begin < (touch.writes ? std::max(read_to, written_to) : written_to)) {
        return fmt::format("channels {} and {} touch the same data, and nothing orders them",
                           std::min(channel, touch.channel), std::max(channel, touch.channel));
      }
    }
    std::size_t& own = reach[static_cast<std::size_t>(touch.channel)][touch.writes ? 1 : 0];
    own = std::max(own, touch.end);
  }
  return "";
}

}  // namespace paceline
