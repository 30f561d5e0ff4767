// What ranks do in the simulator: each lane takes the acts of its channel in their order.
#include <fmt/format.h>

#include <algorithm>

#include "base/wrong.h"
#include "schedule/simulator_state.h"

namespace paceline {

void Simulator::advance(int number) {
  Lane& lane = lanes_[at(number)];
  const auto& acts = lane.program->acts;
  for (; lane.next < acts.size(); ++lane.next) {
    const Program::Act& act = acts[lane.next];
    if (act.channel != lane.channel) continue;
    if (!lane.paid) {
      if (!can_take(number, lane, act)) return;
      lane.since = now_;
      if (const double time = time_of(lane, act); time > 0) {
        lane.paid = true;
        lane.wait = Wait::time;
        schedule(now_ + time, Kind::lane, number);
        return;
      }
    }
    take(number, lane, act);
    if (!error_.ok()) return;
    lane.paid = false;
    lane.come = 0;
    result_.ends[at(lane.collective)] = std::max(result_.ends[at(lane.collective)], now_);
  }
}

bool Simulator::can_take(int number, Lane& lane, const Program::Act& act) {
  const auto wait = [&](Wait what) {
    if (lane.wait != what) lane.since = now_;
    lane.wait = what;
    return false;
  };
  const auto waited = [&](const char* name, int peer, double bytes) {
    if (with_timeline_ && now_ > lane.since)
      result_.timeline.push_back({name, lane.collective, lane.rank, lane.channel, peer, bytes, lane.since, now_});
    lane.wait = Wait::none;
  };
  if (act.action == Action::copy) return true;
  const int first = lane.program->peers[act.first_peer];
  if (act.action == Action::send) {
    if (lane.under_way >= capacity(ranks_of(lane.collective))) return wait(Wait::room);
    if (lane.wait == Wait::room) waited("wait for room", first, 0);
    return true;
  }
  for (; lane.come < act.peer_count; ++lane.come) {
    const int peer = lane.program->peers[act.first_peer + lane.come];
    const int connection = connection_from(number, peer);
    if (connection < 0) return false;
    if (connections_[at(connection)].arrived.empty()) {
      connections_[at(connection)].awaited = true;
      return wait(Wait::message);
    }
    if (lane.wait == Wait::message) waited("wait", peer, act.bytes);
  }
  return true;
}

double Simulator::time_of(const Lane& lane, const Program::Act& act) const {
  double time = machine_.step;
  switch (act.action) {
    case Action::send: time += act.bytes / machine_.send_bandwidth; break;
    case Action::recv: time += act.bytes / machine_.take_bandwidth; break;
    case Action::recv_reduce: {
      const std::uint32_t folds = act.own ? act.peer_count : act.peer_count - 1;
      time += act.bytes * folds / machine_.reduce_bandwidth;
      break;
    }
    case Action::copy: time += act.bytes / machine_.copy_bandwidth; break;
  }
  return time * lane.slowness;
}

void Simulator::take(int number, Lane& lane, const Program::Act& act) {
  if (act.action == Action::send) return send(number, lane, act);
  if (act.action == Action::copy) {
    if (with_timeline_)
      result_.timeline.push_back(
          {"copy", lane.collective, lane.rank, lane.channel, lane.rank, act.bytes, lane.since, now_});
    return;
  }
  for (std::uint32_t i = 0; i < act.peer_count; ++i)
    receive(lane, number, lane.program->peers[act.first_peer + i], act.action == Action::recv_reduce);
}

void Simulator::send(int number, const Lane& lane, const Program::Act& act) {
  const int message = messages_.take();
  messages_[message].lane = number;
  messages_[message].receivers = static_cast<int>(act.peer_count);
  messages_.append(lanes_[at(number)].sent, message);
  ++lanes_[at(number)].under_way;
  result_.messages += act.peer_count;
  int carrier = -1;
  for (std::uint32_t i = 0; i < act.peer_count; ++i) {
    const int connection = connection_to(number, lane.program->peers[act.first_peer + i]);
    if (connection < 0) return;
    const int parcel = parcels_.take();
    parcels_[parcel].message = message;
    parcels_[parcel].connection = connection;
    parcels_[parcel].bytes = act.bytes;
    if (machine_.multicast && carrier >= 0) {
      parcels_[parcel].also = parcels_[carrier].also;
      parcels_[carrier].also = parcel;
      continue;
    }
    carrier = parcel;
    if (!machine_.multicast && machine_.ports == Ports::connections && connections_[at(connection)].ways->size() > 1) {
      send_in_parts(parcel);
      continue;
    }
    const int port = port_of(lane.gpu, connections_[at(connection)]);
    parcels_[parcel].port = port;
    if (!machine_.multicast) {
      parcels_.append(ports_[at(port)].waiting, parcel);
      serve(port);
    }
  }
  if (machine_.multicast && carrier >= 0) {
    const int port = parcels_[carrier].port;
    parcels_.append(ports_[at(port)].waiting, carrier);
    serve(port);
  }
}

void Simulator::receive(const Lane& lane, int lane_number, int peer, bool reduces) {
  Connection& connection = connections_[at(connection_from(lane_number, peer))];
  const int parcel = parcels_.pop(connection.arrived);
  const int message = parcels_[parcel].message;
  if (with_timeline_)
    result_.timeline.push_back({"recv", lane.collective, lane.rank, lane.channel, peer, parcels_[parcel].bytes,
                                std::max(lane.since, parcels_[parcel].arrived), now_, reduces});
  parcels_.give(parcel);
  if (--messages_[message].receivers > 0) return;
  const int sender = messages_[message].lane;
  Lane& owner = lanes_[at(sender)];
  while (!owner.sent.empty() && messages_[owner.sent.head].receivers == 0) {
    messages_.give(messages_.pop(owner.sent));
    --owner.under_way;
  }
  if (owner.wait == Wait::room) wake(sender);
}

int Simulator::connection_from(int receiver, int sender_rank) {
  const Lane& lane = lanes_[at(receiver)];
  const int ranks = ranks_of(lane.collective);
  const int period = folded(lane.collective);
  const auto key = static_cast<std::uint64_t>(receiver) << 32 | static_cast<std::uint32_t>(sender_rank);
  if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
  // The rank that stands for the sender, and which of its peers stands for this one.
  const int sender = sender_rank % period;
  const int peer = ((lane.rank + sender - sender_rank) % ranks + ranks) % ranks;
  const int made = open(lane_of(lane.collective, sender, lane.channel), receiver, peer);
  if (made >= 0) numbers_[key] = made;
  return made;
}

int Simulator::connection_to(int sender, int receiver_rank) {
  const Lane& lane = lanes_[at(sender)];
  const int ranks = ranks_of(lane.collective);
  const int receiver = receiver_rank % folded(lane.collective);
  return connection_from(lane_of(lane.collective, receiver, lane.channel),
                         ((lane.rank + receiver - receiver_rank) % ranks + ranks) % ranks);
}

int Simulator::open(int sender, int receiver, int peer) {
  const Lane& lane = lanes_[at(sender)];
  Connection connection;
  connection.sender = sender;
  connection.receiver = receiver;
  connection.peer = peer;
  const int from = lane.gpu;
  const int to = gpu_of(lane.collective, peer);
  connection.ways = &finder_.between(from, to);
  if (connection.ways->empty() && from != to) {
    error_ = Status(Code::unsupported, fmt::format("there is no way from GPU {} to GPU {}", from, to));
    return -1;
  }
  for (const WayPart& way : *connection.ways) {
    double latency = 0;
    for (const int link : way.links) latency += finder_.topology().link(link).latency;
    connection.latency = std::max(connection.latency, latency);
  }
  connection.latency += machine_.delay * lane.slowness;
  connections_.push_back(connection);
  return static_cast<int>(connections_.size()) - 1;
}

}  // namespace paceline
