#include "engine/plan.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/rounding.h"
#include "engine/passing.h"
#include "schedule/extent.h"

namespace paceline {
namespace {

// Numbered accesses of one lane, by place: answers which of them overlap another. Above all, the sends so far whose
// data may still be read, for which a write must wait.
class Accesses {
 public:
  using Counts = std::array<std::uint32_t, max_transports>;

  void add(const Extent& extent, int transport, std::uint32_t number) {
    longest_ = std::max(longest_, extent.end - extent.begin);
    Entry& entry = entries_[{extent.space, extent.begin}];
    entry.end = std::max(entry.end, extent.end);
    entry.after[static_cast<std::size_t>(transport)] = number + 1;
  }

  [[nodiscard]] bool overlap(const Extent& extent) const { return before_writing(extent) != Counts{}; }

  [[nodiscard]] Counts before_writing(const Extent& extent) const {
    Counts after{};
    auto entry = entries_.lower_bound({extent.space, extent.end});
    while (entry != entries_.begin()) {
      --entry;
      if (entry->first.first != extent.space || entry->first.second + longest_ <= extent.begin) break;
      if (entry->second.end <= extent.begin) continue;
      for (std::size_t t = 0; t < after.size(); ++t) after[t] = std::max(after[t], entry->second.after[t]);
    }
    return after;
  }

 private:
  struct Entry {
    std::ptrdiff_t end = 0;
    Counts after{};
  };
  std::map<std::pair<int, std::ptrdiff_t>, Entry> entries_;
  std::ptrdiff_t longest_ = 0;
};

// What comes after a step in its lane.
struct Later {
  bool writes_source = false;
  bool reads_target = false;
};

// Walks from the back, so that what is known is what comes later.
std::vector<Later> look_ahead(const Problem& problem, int rank, std::span<const Step> steps) {
  std::vector<Later> later(steps.size());
  std::vector<Accesses> written(max_channels);
  std::vector<Accesses> read(max_channels);
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Step& step = steps[i];
    const bool has_source = step.action == Action::send || step.action == Action::copy || step.own >= 0;
    const Extent source = extent_of(problem, rank, step.source);
    const Extent target = extent_of(problem, rank, step.target);
    if (step.action == Action::send) {
      later[i].writes_source = written[step.channel].overlap(source);
    } else {
      // What a fold reads where it writes is in the cache already.
      later[i].reads_target = read[step.channel].overlap(target) ||
                              (step.own >= 0 && source.begin == target.begin && source.space == target.space);
      written[step.channel].add(target, 0, 0);
    }
    if (has_source) read[step.channel].add(source, 0, 0);
  }
  return later;
}

// Shorter messages are received in turn: there is little to do for the ones that are there, and whoever looks for many
// messages at once hinders their senders.
constexpr std::size_t long_message = 8 << 10;

void find_any_order(std::vector<PlanStep>& lane) {
  for (std::size_t begin = 0; begin < lane.size();) {
    Accesses targets;
    std::size_t end = begin;
    for (; end < lane.size() && lane[end].action == Action::recv && lane[end].bytes >= long_message; ++end) {
      const auto at = static_cast<std::ptrdiff_t>(lane[end].target);
      const Extent target{static_cast<int>(lane[end].target_buffer), at,
                          at + static_cast<std::ptrdiff_t>(lane[end].bytes)};
      if (targets.overlap(target)) break;
      targets.add(target, 0, 0);
    }
    for (std::size_t i = begin; i < end; ++i) lane[i].in_any_order = static_cast<std::uint32_t>(end - i);
    begin = std::max(end, begin + 1);
  }
}

}  // namespace

Plan bind(Schedule& schedule, const Routes& routes, DataType type, Operation op) {
  const Problem& problem = schedule.problem();
  Plan plan;
  plan.element_bytes = size_of(type);
  plan.takes_over = routes.takes_over;
  if (reduces(problem.collective))
    plan.fold = fold_function(type, op == Operation::avg || op == Operation::premulsum ? Operation::sum : op);
  const std::span<const Step> steps = schedule.steps(routes.rank);
  plan.scratch_bytes = schedule.scratch_elements(routes.rank) * plan.element_bytes;
  plan.lanes.resize(static_cast<std::size_t>(schedule.channels()));
  std::vector<Accesses> open(plan.lanes.size());
  std::vector<Accesses::Counts> sends(plan.lanes.size());
  const bool any_keeps = std::ranges::any_of(routes.keeps_data, std::identity());
  const bool any_places = std::ranges::any_of(routes.needs_place, std::identity());

  std::vector<Passing> passing(plan.lanes.begin(), plan.lanes.end());
  const std::vector<Later> later = look_ahead(problem, routes.rank, steps);
  const std::size_t output_bytes = output_elements(problem, routes.rank) * plan.element_bytes;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    auto& lane = plan.lanes[step.channel];
    PlanStep bound;
    bound.action = step.action;
    bound.channel = step.channel;
    bound.to_all = step.to_all;
    bound.own = step.own;
    bound.source_buffer = step.source.buffer;
    bound.target_buffer = step.target.buffer;
    bound.source = step.source.offset * plan.element_bytes;
    bound.target = step.target.offset * plan.element_bytes;
    bound.bytes = (step.action == Action::send ? step.source : step.target).count * plan.element_bytes;
    const std::span<const int> peers = schedule.peers(routes.rank, step);

    if (step.action != Action::send) {
      const bool folds = step.action == Action::recv_reduce;
      const bool streams = output_bytes >= (folds ? routes.streaming_from.folds : routes.streaming_from.copies);
      const bool may_stream = streams && step.target.buffer == Buffer::output;
      bound.streams = may_stream && !later[i].reads_target;
      bound.first_peer = static_cast<std::uint32_t>(plan.peers.size());
      bound.peer_count = step.peer_count;
      plan.peers.insert(plan.peers.end(), peers.begin(), peers.end());
      if (any_keeps) bound.after = open[step.channel].before_writing(extent_of(problem, routes.rank, step.target));
      if (any_places && step.action == Action::recv_reduce)
        plan.place_bytes = std::max(plan.place_bytes, rounded_up(bound.bytes, 64) * step.peer_count);
      lane.push_back(bound);
      Passing& passes = passing[step.channel];
      const Extent target = extent_of(problem, routes.rank, step.target);
      if (step.action == Action::copy || step.own >= 0) passes.reads(extent_of(problem, routes.rank, step.source));
      passes.writes(target);
      if (step.action == Action::recv || (step.action == Action::recv_reduce && step.peer_count == 1 && step.own >= 0))
        passes.receives(target, routes.transport[static_cast<std::size_t>(peers.front())], may_stream);
      continue;
    }
    bound.stays = !later[i].writes_source;
    // One step for each transport that the receivers are reached by.
    for (int t = 0; t < max_transports; ++t) {
      bound.transport = static_cast<std::uint8_t>(t);
      bound.first_peer = static_cast<std::uint32_t>(plan.peers.size());
      for (int peer : peers)
        if (routes.transport[static_cast<std::size_t>(peer)] == t) plan.peers.push_back(peer);
      bound.peer_count = static_cast<std::uint32_t>(plan.peers.size()) - bound.first_peer;
      if (bound.peer_count == 0) continue;
      auto& number = sends[step.channel][static_cast<std::size_t>(t)];
      if (routes.keeps_data[static_cast<std::size_t>(t)])
        open[step.channel].add(extent_of(problem, routes.rank, step.source), t, number);
      ++number;
      lane.push_back(bound);
      Passing& passes = passing[step.channel];
      const Extent source = extent_of(problem, routes.rank, step.source);
      if (step.peer_count == 1)
        passes.sends(source, t);
      else
        passes.reads(source);
    }
  }
  for (Passing& each : passing) each.ends();
  for (auto& lane : plan.lanes) find_any_order(lane);
  return plan;
}

}  // namespace paceline
