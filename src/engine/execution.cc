#include "engine/execution.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/copies.h"

namespace paceline {
namespace {

constexpr std::uint32_t nothing_kept = UINT32_MAX;
// For a message, before its receive gets a lane: some microseconds.
constexpr int looks_at_once = 64;

void copy(const PlanStep& step, std::byte* target, const std::byte* source, std::size_t bytes,
          Lines lines = Lines::read) {
  if (step.streams)
    stream_copy(target, source, bytes, lines);
  else
    cached_copy(target, source, bytes, lines);
}

// Fold into a message that is passed on, and from there to the target: piece by piece, so that the second is read from
// the first-level cache.
void fold_in_place(const Plan& plan, const PlanStep& step, std::byte* message, const std::byte* const* sources,
                   std::byte* target) {
  constexpr std::size_t piece_bytes = 8192;
  const std::size_t longest = step.unread ? step.bytes : piece_bytes;
  for (std::size_t begin = 0; begin < step.bytes; begin += longest) {
    const std::size_t bytes = std::min(longest, step.bytes - begin);
    const std::array<const std::byte*, 2> at{sources[0] + begin, sources[1] + begin};
    plan.fold(message + begin, at.data(), at.size(), bytes / plan.element_bytes);
    if (!step.unread) copy(step, target + begin, message + begin, bytes);
  }
}

}  // namespace

Execution::Execution(Wiring& wiring) : wiring_(wiring) {
  lanes_.reserve(max_channels);
  sources_.resize(static_cast<std::size_t>(max_channels) * (static_cast<std::size_t>(wiring.ranks) + 1));
}

void Execution::clear() {
  lanes_.clear();
  channels_ = 0;
}

int Execution::add(const Plan& plan, const Call& call, const Memory& memory, int after) {
  std::byte* places = memory.places;
  for (std::size_t channel = 0; channel < plan.lanes.size(); ++channel) {
    const auto& steps = plan.lanes[channel];
    if (!steps.empty()) {
      const std::size_t stride = static_cast<std::size_t>(wiring_.ranks) + 1;
      const std::size_t first_source = lanes_.size() * stride;
      if (sources_.size() < first_source + stride) sources_.resize(first_source + stride);
      Lane& lane = lanes_.emplace_back();  // filled in its place: a copy of it would wait for what was just written
      channels_ = std::max(channels_, static_cast<int>(channel) + 1);
      lane.next = steps.data();
      lane.end = steps.data() + steps.size();
      lane.plan = &plan;
      lane.call = call;
      lane.base = memory.by_buffer();
      lane.places = places;
      lane.after = after;
      lane.first_source = static_cast<std::uint32_t>(first_source);
      for (std::size_t t = 0; t < lane.before.size(); ++t) lane.before[t] = wiring_.posted[t][channel];
    }
    if (places != nullptr) places += plan.place_bytes;
  }
  return static_cast<int>(lanes_.size()) - 1;
}

inline bool Execution::may_write(const Lane& lane, const PlanStep& step) const {
  for (std::size_t t = 0; t < step.after.size(); ++t)
    if (step.after[t] != 0 && wiring_.transports[t]->sent(step.channel) < lane.before[t] + step.after[t]) return false;
  return true;
}

// Of the message that has come: where it lies, if it is one to keep, and can be kept.
inline std::byte* Execution::message_to_keep(Lane& lane, const PlanStep& step, int from) const {
  if (step.kept < 0) return nullptr;
  lane.kept[static_cast<std::size_t>(step.kept)] = nothing_kept;
  return transport_to(from).own(step.channel, from, step.to_all);
}

inline Attempt Execution::keep(Lane& lane, const PlanStep& step, int from) const {
  return transport_to(from).keep(step.channel, from, step.to_all, &lane.kept[static_cast<std::size_t>(step.kept)]);
}

Attempt Execution::receive(Lane& lane, const PlanStep& step) {
  if (!may_write(lane, step)) return Attempt::later;
  const int peer = lane.plan->peers[step.first_peer];
  std::byte* target = lane.base[static_cast<std::size_t>(step.target_buffer)] + step.target;
  Transport& transport = transport_to(peer);
  const std::byte* data = nullptr;
  const Attempt attempt = transport.receive(step.channel, peer, lane.call, step.bytes, target, &data, step.to_all);
  if (attempt != Attempt::done) return attempt;
  if (message_to_keep(lane, step, peer) != nullptr) {
    if (!step.unread) copy(step, target, data, step.bytes, lane.plan->takes_over ? Lines::taken : Lines::read);
    return keep(lane, step, peer);
  }
  if (data != target) copy(step, target, data, step.bytes);
  return transport.release(step.channel, peer, step.to_all);
}

Attempt Execution::receive_and_fold(Lane& lane, const PlanStep& step) {
  const int* peers = &lane.plan->peers[step.first_peer];
  const std::byte** sources = &sources_[lane.first_source];
  const std::size_t stride = place_stride(step.bytes);
  for (; lane.arrived < step.peer_count; ++lane.arrived) {
    const std::uint32_t i = lane.arrived;
    // The local operand has its place among the messages: those from `own` on stand one further.
    const std::uint32_t position = step.own >= 0 && i >= static_cast<std::uint32_t>(step.own) ? i + 1 : i;
    std::byte* place = lane.places == nullptr ? nullptr : lane.places + i * stride;
    const Attempt attempt = transport_to(peers[i]).receive(step.channel, peers[i], lane.call, step.bytes, place,
                                                           &sources[position], step.to_all);
    if (attempt == Attempt::done) continue;
    for (std::uint32_t later = i + 1; later < step.peer_count; ++later)
      transport_to(peers[later]).expect(step.channel, peers[later], step.to_all);
    return attempt;
  }
  if (!may_write(lane, step)) return Attempt::later;
  if (wiring_.watch != nullptr) wiring_.watch->folds(step.channel, {peers, step.peer_count});
  std::size_t count = step.peer_count;
  if (step.own >= 0) {
    sources[step.own] = lane.base[static_cast<std::size_t>(step.source_buffer)] + step.source;
    ++count;
  }
  std::byte* target = lane.base[static_cast<std::size_t>(step.target_buffer)] + step.target;
  if (std::byte* message = message_to_keep(lane, step, *peers); message != nullptr) {
    fold_in_place(*lane.plan, step, message, sources, target);
    lane.arrived = 0;
    return keep(lane, step, *peers);
  }
  const std::size_t elements = step.bytes / lane.plan->element_bytes;
  if (step.streams)
    stream_fold(lane.plan->fold, target, sources, count, elements, lane.plan->element_bytes);
  else
    lane.plan->fold(target, sources, count, elements);
  for (std::uint32_t i = 0; i < step.peer_count; ++i)
    if (transport_to(peers[i]).release(step.channel, peers[i], step.to_all) == Attempt::failed) return Attempt::failed;
  lane.arrived = 0;
  return Attempt::done;
}

inline Attempt Execution::send(Lane& lane, const PlanStep& step) {
  Transport& transport = *wiring_.transports[step.transport];
  const std::byte* source = lane.base[static_cast<std::size_t>(step.source_buffer)] + step.source;
  const std::span<const int> peers(&lane.plan->peers[step.first_peer], step.peer_count);
  const std::uint32_t kept = step.kept < 0 ? nothing_kept : lane.kept[static_cast<std::size_t>(step.kept)];
  const Attempt attempt =
      kept == nothing_kept
          ? transport.send(step.channel, peers, lane.call, {source, step.bytes}, step.stays, step.to_all)
          : transport.pass_on(step.channel, peers.front(), lane.call, kept, step.bytes, step.to_all);
  if (attempt == Attempt::done) ++wiring_.posted[step.transport][step.channel];
  return attempt;
}

inline Attempt Execution::take(Lane& lane, const PlanStep& step) {
  switch (step.action) {
    case Action::send: return send(lane, step);
    case Action::recv: return receive(lane, step);
    case Action::recv_reduce: return receive_and_fold(lane, step);
    case Action::copy:
      if (!may_write(lane, step)) return Attempt::later;
      if (wiring_.watch != nullptr) wiring_.watch->copy_begins();
      copy(step, lane.base[static_cast<std::size_t>(step.target_buffer)] + step.target,
           lane.base[static_cast<std::size_t>(step.source_buffer)] + step.source, step.bytes);
      if (wiring_.watch != nullptr) wiring_.watch->copy_ends(step.channel, step.bytes, lane.call);
      return Attempt::done;
  }
  return Attempt::failed;
}

// The lane's next step waits: take those of its row whose messages are there. A rank's messages come in their order.
Attempt Execution::take_out_of_turn(Lane& lane) {
  constexpr std::uint32_t most = 64;
  const std::uint32_t row = std::min(lane.next->in_any_order, most);
  // A bit for each rank, modulo 64.
  const auto sender = [&](const PlanStep& step) {
    return std::uint64_t{1} << (static_cast<unsigned>(lane.plan->peers[step.first_peer]) % most);
  };
  std::uint64_t waited_for = sender(*lane.next);
  Attempt found = Attempt::later;
  for (std::uint32_t i = 1; i < row; ++i) {
    const PlanStep& step = lane.next[i];
    if ((lane.taken >> i & 1U) != 0 || (waited_for & sender(step)) != 0) continue;
    const Attempt attempt = receive(lane, step);
    if (attempt == Attempt::failed) return attempt;
    if (attempt == Attempt::done) {
      lane.taken |= std::uint64_t{1} << i;
      found = attempt;
    } else {
      waited_for |= sender(step);
    }
  }
  return found;
}

bool Execution::take_at_once(const Plan& plan, const Call& call, const Memory& memory) {
  if (plan.lanes.size() != 1 || plan.lanes.front().size() != 1) return false;
  const PlanStep& step = plan.lanes.front().front();
  if (step.action != Action::send && step.action != Action::recv) return false;
  const std::span<const int> peers(&plan.peers[step.first_peer], step.peer_count);
  Transport& transport = transport_to(peers.front());
  if (step.bytes > transport.short_message() || (peers.size() > 1 && !step.to_all)) return false;
  if (step.action == Action::send) {
    const std::span<const std::byte> data(
        memory.by_buffer()[static_cast<std::size_t>(step.source_buffer)] + step.source, step.bytes);
    if (transport.send(step.channel, peers, call, data, step.stays, step.to_all) != Attempt::done) return false;
    ++wiring_.posted[step.transport][step.channel];
    return true;
  }
  std::byte* target = memory.by_buffer()[static_cast<std::size_t>(step.target_buffer)] + step.target;
  const int looks = wiring_.oversubscribed ? 1 : looks_at_once;
  for (int look = 0; look < looks; ++look) {
    const std::byte* data = nullptr;
    switch (transport.receive(step.channel, peers.front(), call, step.bytes, target, &data, step.to_all)) {
      case Attempt::later: _mm_pause(); break;
      case Attempt::failed: return false;
      case Attempt::done:
        if (data != target) std::memcpy(target, data, step.bytes);
        return transport.release(step.channel, peers.front(), step.to_all) == Attempt::done;
    }
  }
  return false;
}

bool Execution::everything_left() const {
  for (std::size_t t = 0; t < max_transports; ++t) {
    if (wiring_.transports[t] == nullptr) continue;
    for (int channel = 0; channel < channels_; ++channel)
      if (wiring_.transports[t]->sent(channel) < wiring_.posted[t][static_cast<std::size_t>(channel)]) return false;
  }
  return true;
}

bool Execution::has_ended() const {
  return std::ranges::all_of(lanes_, [](const Lane& lane) { return lane.next == lane.end; }) && everything_left();
}

Execution::Turn Execution::advance() {
  bool moved = false;
  bool ended = true;
  for (Lane& lane : lanes_) {
    if (lane.after >= 0 && !ended_lane(lane.after)) {
      ended = false;
      continue;
    }
    while (lane.next != lane.end) {
      Attempt attempt = take(lane, *lane.next);
      if (attempt == Attempt::done) {
        moved = true;
        lane.pass();
        continue;
      }
      if (attempt == Attempt::later && lane.next->in_any_order > 1) {
        attempt = take_out_of_turn(lane);
        moved |= attempt == Attempt::done;
      }
      if (attempt == Attempt::failed) return Turn::failed;
      ended = false;
      break;
    }
  }
  if (ended && everything_left()) return Turn::done;
  return moved ? Turn::moved : Turn::stuck;
}

Execution::Wait Execution::waiting_for(std::size_t number) const {
  const Lane& lane = lanes_[number];
  if (lane.next == lane.end || (lane.after >= 0 && !ended_lane(lane.after))) return {};
  const PlanStep& step = *lane.next;
  const std::span<const int> peers(lane.plan->peers.data() + step.first_peer, step.peer_count);
  if (step.action == Action::send) {
    const int rank = wiring_.transports[step.transport]->holder(step.channel, peers, lane.call, step.to_all);
    const bool to_it = std::ranges::find(peers, rank) != peers.end();
    return {rank, lane.call, to_it && is_collective(lane.call)};
  }
  const bool folds = step.action == Action::recv_reduce;
  const bool wants_message = folds ? lane.arrived < step.peer_count : step.action == Action::recv;
  if (wants_message && (folds || may_write(lane, step))) return {peers[lane.arrived], lane.call, true};
  for (std::size_t t = 0; t < step.after.size(); ++t)
    if (step.after[t] != 0 && wiring_.transports[t]->sent(step.channel) < lane.before[t] + step.after[t])
      return {wiring_.transports[t]->holder(step.channel, {}, lane.call, false), lane.call, false};
  return {};
}

// The call of the messages to this rank. A collective's lanes are all of one call.
Call Execution::call_with(int rank) const {
  for (const Lane& lane : lanes_)
    if (lane.end[-1].action == Action::send && std::ranges::find(lane.plan->peers, rank) != lane.plan->peers.end())
      return lane.call;
  return lanes_.empty() ? Call{} : lanes_.front().call;
}

Execution::Wait Execution::waiting_for() const {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
    if (const Wait wait = waiting_for(lane); wait.rank >= 0) return wait;
  for (std::size_t t = 0; t < max_transports; ++t) {
    if (wiring_.transports[t] == nullptr) continue;
    for (int channel = 0; channel < channels_; ++channel) {
      if (wiring_.transports[t]->sent(channel) >= wiring_.posted[t][static_cast<std::size_t>(channel)]) continue;
      if (const int rank = wiring_.transports[t]->holder(channel, {}, {}, false); rank >= 0)
        return {rank, call_with(rank)};
    }
  }
  return {};
}

Status Execution::failure() const {
  for (const Transport* transport : wiring_.transports)
    if (transport != nullptr && !transport->failure().ok()) return transport->failure();
  return Status(Code::internal, "an engine failed without a reason");
}

}  // namespace paceline
