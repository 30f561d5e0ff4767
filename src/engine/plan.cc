#include "engine/plan.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "engine/passing.h"
#include "schedule/extent_map.h"

namespace paceline {
namespace {

// What comes after a step in its lane.
struct Later {
  bool writes_source = false;
  bool reads_target = false;
};

// Walks from the back, so that what is known is what comes later.
std::vector<Later> look_ahead(const Problem& problem, int rank, std::span<const Step> steps) {
  std::vector<Later> later(steps.size());
  std::vector<ExtentMap<bool>> written(max_channels);
  std::vector<ExtentMap<bool>> read(max_channels);
  for (std::size_t i = steps.size(); i-- > 0;) {
    const Step& step = steps[i];
    const Extent source = extent_of(problem, rank, step.source);
    const Extent target = extent_of(problem, rank, step.target);
    if (step.action == Action::send) {
      later[i].writes_source = written[step.channel].overlaps(source);
    } else {
      // What a fold reads where it writes is in the cache already.
      later[i].reads_target = read[step.channel].overlaps(target) ||
                              (step.own >= 0 && source.begin == target.begin && source.memory == target.memory);
      written[step.channel][target] = true;
    }
    if (step.reads()) read[step.channel][source] = true;
  }
  return later;
}

// Shorter messages are received in turn: there is little to do for the ones that are there, and whoever looks for many
// messages at once hinders their senders.
constexpr std::size_t long_message = 8 << 10;

void find_any_order(std::vector<PlanStep>& lane) {
  for (std::size_t begin = 0; begin < lane.size();) {
    ExtentMap<bool> targets;
    std::size_t end = begin;
    for (; end < lane.size() && lane[end].action == Action::recv && lane[end].bytes >= long_message; ++end) {
      const auto at = static_cast<std::ptrdiff_t>(lane[end].target);
      const Extent target{static_cast<int>(lane[end].target_buffer), at,
                          at + static_cast<std::ptrdiff_t>(lane[end].bytes)};
      if (targets.overlaps(target)) break;
      targets[target] = true;
    }
    for (std::size_t i = begin; i < end; ++i) lane[i].in_any_order = static_cast<std::uint32_t>(end - i);
    begin = std::max(end, begin + 1);
  }
}

// Binds the steps of one rank, one after another.
class Binder {
 public:
  Binder(Schedule& schedule, const Routes& routes, DataType type, Operation op)
      : schedule_(schedule),
        routes_(routes),
        output_bytes_(output_elements(schedule.problem(), routes.rank) * size_of(type)),
        any_keeps_(std::ranges::any_of(routes.keeps_data, std::identity())),
        any_places_(std::ranges::any_of(routes.needs_place, std::identity())) {
    plan_.element_bytes = size_of(type);
    plan_.takes_over = routes.takes_over;
    if (reduces(schedule.problem().collective))
      plan_.fold = fold_function(type, op == Operation::avg || op == Operation::premulsum ? Operation::sum : op);
    plan_.scratch_bytes = schedule.scratch_elements(routes.rank) * plan_.element_bytes;
    plan_.lanes.resize(static_cast<std::size_t>(schedule.channels()));
    for (auto& lane : plan_.lanes) passing_.emplace_back(lane);
    sent_.resize(plan_.lanes.size());
  }

  Plan plan() {
    const std::span<const Step> steps = schedule_.steps(routes_.rank);
    const std::vector<Later> later = look_ahead(schedule_.problem(), routes_.rank, steps);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].action == Action::send)
        bind_send(steps[i], later[i]);
      else
        bind_writing(steps[i], later[i]);
    }
    for (Passing& each : passing_) each.ends();
    for (auto& lane : plan_.lanes) find_any_order(lane);
    return std::move(plan_);
  }

 private:
  // A lane's sends: how many there are, by transport; and of each place, up to which of them it may be read still.
  struct Sent {
    using Counts = std::array<std::uint32_t, max_transports>;

    Counts counts{};
    ExtentMap<Counts> open;

    [[nodiscard]] Counts before_writing(const Extent& extent) const {
      Counts after{};
      open.visit_overlapping(extent, [&](const Extent&, const Counts& sent) {
        for (std::size_t t = 0; t < after.size(); ++t) after[t] = std::max(after[t], sent[t]);
      });
      return after;
    }
  };

  [[nodiscard]] Extent extent(const Region& region) const {
    return extent_of(schedule_.problem(), routes_.rank, region);
  }
  [[nodiscard]] std::uint8_t transport_to(int peer) const { return routes_.transport[static_cast<std::size_t>(peer)]; }

  // What is the same for all steps.
  [[nodiscard]] PlanStep in_bytes(const Step& step) const {
    PlanStep bound;
    bound.action = step.action;
    bound.channel = step.channel;
    bound.to_all = step.to_all;
    bound.own = step.own;
    bound.source_buffer = step.source.buffer;
    bound.target_buffer = step.target.buffer;
    bound.source = step.source.offset * plan_.element_bytes;
    bound.target = step.target.offset * plan_.element_bytes;
    bound.bytes = step.elements() * plan_.element_bytes;
    bound.first_peer = static_cast<std::uint32_t>(plan_.peers.size());
    return bound;
  }

  // A receive, a fold or a copy.
  void bind_writing(const Step& step, const Later& later) {
    PlanStep bound = in_bytes(step);
    const std::span<const int> peers = schedule_.peers(routes_.rank, step);
    plan_.peers.insert(plan_.peers.end(), peers.begin(), peers.end());
    bound.peer_count = step.peer_count;
    const bool folds = step.action == Action::recv_reduce;
    const bool is_long = output_bytes_ >= (folds ? routes_.streaming_from.folds : routes_.streaming_from.copies);
    const bool may_stream = is_long && step.target.buffer == Buffer::output;
    bound.streams = may_stream && !later.reads_target;
    const Extent target = extent(step.target);
    if (any_keeps_) bound.after = sent_[step.channel].before_writing(target);
    if (any_places_ && folds)
      plan_.place_bytes = std::max(plan_.place_bytes, place_stride(bound.bytes) * step.peer_count);
    plan_.lanes[step.channel].push_back(bound);

    Passing& passing = passing_[step.channel];
    if (step.reads()) passing.reads(extent(step.source));
    passing.writes(target);
    if (step.action == Action::recv || (folds && step.peer_count == 1 && step.own >= 0))
      passing.receives(target, transport_to(peers.front()), may_stream);
  }

  // One step for each transport that the receivers are reached by.
  void bind_send(const Step& step, const Later& later) {
    const Extent source = extent(step.source);
    for (std::uint8_t t = 0; t < max_transports; ++t) {
      PlanStep bound = in_bytes(step);
      bound.transport = t;
      bound.stays = !later.writes_source;
      std::ranges::copy_if(schedule_.peers(routes_.rank, step), std::back_inserter(plan_.peers),
                           [&](int peer) { return transport_to(peer) == t; });
      bound.peer_count = static_cast<std::uint32_t>(plan_.peers.size()) - bound.first_peer;
      if (bound.peer_count == 0) continue;
      plan_.lanes[step.channel].push_back(bound);

      auto& [counts, open] = sent_[step.channel];
      ++counts[t];
      if (routes_.keeps_data[t]) open[source][t] = counts[t];
      if (step.peer_count == 1)
        passing_[step.channel].sends(source, t);
      else
        passing_[step.channel].reads(source);
    }
  }

  Schedule& schedule_;
  const Routes& routes_;
  const std::size_t output_bytes_;
  const bool any_keeps_;
  const bool any_places_;
  Plan plan_;
  std::vector<Passing> passing_;  // by lane
  std::vector<Sent> sent_;        // by lane
};

}  // namespace

Plan bind(Schedule& schedule, const Routes& routes, DataType type, Operation op) {
  return Binder(schedule, routes, type, op).plan();
}

}  // namespace paceline
