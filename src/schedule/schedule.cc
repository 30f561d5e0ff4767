#include "schedule/schedule.h"

#include <algorithm>

#include "schedule/extent.h"

namespace paceline {

const char* name(Action action) {
  switch (action) {
    case Action::send: return "send";
    case Action::recv: return "recv";
    case Action::recv_reduce: return "recv_reduce";
    case Action::copy: return "copy";
  }
  return "?";
}

Schedule::Schedule(const Problem& problem, const Parameters& parameters, std::optional<int> only)
    : problem_(problem),
      parameters_(parameters),
      only_(only),
      lanes_(only ? 1 : static_cast<std::size_t>(problem.ranks)) {}

int Schedule::in_order(int position) const {
  return parameters_.order.empty() ? position : parameters_.order[static_cast<std::size_t>(position)];
}

void Schedule::add(int rank, Step step, std::span<const int> peers, std::size_t count) {
  Lane& lane = lanes_[index(rank)];
  step.first_peer = static_cast<std::uint32_t>(lane.peers.size());
  step.peer_count = static_cast<std::uint32_t>(peers.size());
  lane.peers.insert(lane.peers.end(), peers.begin(), peers.end());
  (step.action == Action::send ? lane.sends : lane.receives).push_back({step, count});
}

void Schedule::move(Place from, Place to, std::size_t count, int channel) {
  multicast(from, std::span(&to, 1), count, channel);
}

void Schedule::multicast(Place from, std::span<const Place> to, std::size_t count, int channel) {
  if (count == 0) return;
  longest_ = std::max(longest_, count);
  channels_ = std::max(channels_, channel + 1);
  Step step;
  step.channel = static_cast<std::uint8_t>(channel);
  step.source = {from.buffer, from.offset, 0};
  const auto others = std::ranges::count_if(to, [&](const Place& place) { return place.rank != from.rank; });
  step.to_all = others > 1 && others == problem_.ranks - 1;
  const auto location = [&](const Place& place) { return locate(problem_, place.rank, place.buffer, place.offset); };
  std::vector<int> receivers;
  for (const Place& place : to) {
    if (place.rank == from.rank) {
      if (!keeps(from.rank) || location(from) == location(place)) continue;
      Step copy = step;
      copy.action = Action::copy;
      copy.to_all = false;
      copy.target = {place.buffer, place.offset, 0};
      add(from.rank, copy, {}, count);
      continue;
    }
    if (keeps(from.rank)) receivers.push_back(place.rank);
    if (keeps(place.rank)) {
      Step receive = step;
      receive.action = Action::recv;
      receive.source = {};
      receive.target = {place.buffer, place.offset, 0};
      add(place.rank, receive, std::span(&from.rank, 1), count);
    }
  }
  if (!receivers.empty()) {
    step.action = Action::send;
    add(from.rank, step, receivers, count);
  }
}

void Schedule::reduce(std::span<const Place> from, Place to, std::size_t count, int channel) {
  reduce(from, std::span(&to, 1), count, channel);
}

void Schedule::reduce(std::span<const Place> from, std::span<const Place> to, std::size_t count, int channel) {
  if (count == 0) return;
  if (from.size() == 1) return multicast(from[0], to, count, channel);
  longest_ = std::max(longest_, count);
  channels_ = std::max(channels_, channel + 1);
  const bool to_all = to.size() > 2 && to.size() == static_cast<std::size_t>(problem_.ranks);
  std::vector<int> peers;
  for (const Place& place : from) {
    if (!keeps(place.rank)) continue;
    peers.clear();
    for (const Place& receiver : to)
      if (receiver.rank != place.rank) peers.push_back(receiver.rank);
    if (peers.empty()) continue;
    Step send;
    send.action = Action::send;
    send.channel = static_cast<std::uint8_t>(channel);
    send.to_all = to_all;
    send.source = {place.buffer, place.offset, 0};
    add(place.rank, send, peers, count);
  }
  for (const Place& place : to) {
    if (!keeps(place.rank)) continue;
    Step fold;
    fold.action = Action::recv_reduce;
    fold.channel = static_cast<std::uint8_t>(channel);
    fold.to_all = to_all;
    fold.target = {place.buffer, place.offset, 0};
    peers.clear();
    for (const Place& operand : from) {
      if (operand.rank == place.rank) {
        fold.own = static_cast<std::int16_t>(peers.size());
        fold.source = {operand.buffer, operand.offset, 0};
      } else {
        peers.push_back(operand.rank);
      }
    }
    add(place.rank, fold, peers, count);
  }
}

void Schedule::need_scratch(int rank, std::size_t elements) {
  if (!keeps(rank)) return;
  auto& scratch = lanes_[index(rank)].scratch;
  scratch = std::max(scratch, elements);
}

void Schedule::append(int rank, Step step, std::span<const int> peers) {
  round();
  if (!keeps(rank)) return;
  Lane& lane = lanes_[index(rank)];
  step.first_peer = static_cast<std::uint32_t>(lane.peers.size());
  step.peer_count = static_cast<std::uint32_t>(peers.size());
  lane.peers.insert(lane.peers.end(), peers.begin(), peers.end());
  channels_ = std::max(channels_, step.channel + 1);
  lane.steps.push_back(step);
}

void Schedule::round() {
  if (longest_ == 0) return;
  for (Lane& lane : lanes_) close_round(lane, longest_);
  longest_ = 0;
}

// Chunk by chunk through all moves of the round: first what leaves, then what comes.
void Schedule::close_round(Lane& lane, std::size_t longest) const {
  if (lane.sends.empty() && lane.receives.empty()) return;
  const std::size_t chunk = parameters_.chunk;
  const auto take = [&](const Pending& pending, std::size_t begin) {
    if (begin >= pending.count) return;
    const std::size_t count = std::min(chunk, pending.count - begin);
    Step step = pending.step;
    for (Region* region : {&step.source, &step.target}) {
      region->offset += begin;
      region->count = count;
    }
    if (step.action == Action::send || (step.action == Action::recv_reduce && step.own < 0)) {
      if (step.action == Action::send)
        step.target = {};
      else
        step.source = {};
    }
    if (step.action == Action::recv) step.source = {};
    lane.steps.push_back(step);
  };
  for (std::size_t begin = 0; begin < longest;) {
    for (const Pending& pending : lane.sends) take(pending, begin);
    for (const Pending& pending : lane.receives) take(pending, begin);
    if (longest - begin <= chunk) break;
    begin += chunk;
  }
  lane.sends.clear();
  lane.receives.clear();
}

std::span<const Step> Schedule::steps(int rank) {
  round();
  return lanes_[index(rank)].steps;
}

std::span<const int> Schedule::peers(int rank, const Step& step) const {
  return std::span(lanes_[index(rank)].peers).subspan(step.first_peer, step.peer_count);
}

}  // namespace paceline
