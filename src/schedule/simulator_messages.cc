// How messages travel in the simulator: through a port, over their ways' links, to the lane that awaits them.
#include <algorithm>
#include <limits>

#include "base/hash.h"
#include "schedule/simulator_state.h"

namespace paceline {

int Simulator::port_of(int gpu, Connection& connection) {
  const bool one = machine_.ports == Ports::one;
  int& port = one ? port_of_gpu_[at(gpu)] : connection.port;
  if (port < 0) {
    port = static_cast<int>(ports_.size());
    ports_.resize(ports_.size() + (one ? 1 : std::max<std::size_t>(1, connection.ways->size())));
  }
  return port;
}

// Each way carries its parts of the messages one after the other, and waits for no other way.
void Simulator::send_in_parts(int whole) {
  Connection& connection = connections_[at(parcels_[whole].connection)];
  const int first = port_of(lanes_[at(connection.sender)].gpu, connection);
  const int ways = static_cast<int>(connection.ways->size());
  parcels_[whole].since = std::numeric_limits<double>::infinity();
  parcels_[whole].flows = ways;
  for (int way = 0; way < ways; ++way) {
    const int part = parcels_.take();
    parcels_[part].whole = whole;
    parcels_[part].way = way;
    parcels_[part].message = parcels_[whole].message;
    parcels_[part].connection = parcels_[whole].connection;
    parcels_[part].bytes = parcels_[whole].bytes * (*connection.ways)[at(way)].part;
    parcels_[part].port = first + way;
    parcels_.append(ports_[at(first + way)].waiting, part);
  }
  for (int way = 0; way < ways; ++way) serve(first + way);
}

// The port takes the next message, if it is free.
void Simulator::serve(int number) {
  Port& port = ports_[at(number)];
  if (port.busy || port.waiting.empty()) return;
  const int parcel = parcels_.pop(port.waiting);
  port.busy = true;
  parcels_[parcel].since = now_;
  if (const int whole = parcels_[parcel].whole; whole >= 0)
    parcels_[whole].since = std::min(parcels_[whole].since, now_);
  const Lane& lane = lanes_[at(messages_[parcels_[parcel].message].lane)];
  if (const double start = machine_.start * lane.slowness; start > 0)
    schedule(now_ + start, Kind::bytes_flow, parcel);
  else
    let_flow(parcel);
}

void Simulator::let_flow(int number) {
  const Parcel parcel = parcels_[number];
  const Connection& connection = connections_[at(parcel.connection)];
  if (parcel.bytes == 0 || (connection.ways->empty() && parcel.also < 0)) return sent(number);
  if (parcel.whole >= 0) {
    parcels_[number].flows = 1;
    return flow(number, (*connection.ways)[at(parcel.way)].links, parcel.bytes);
  }
  if (parcel.also < 0) {
    parcels_[number].flows = static_cast<int>(connection.ways->size());
    for (const WayPart& way : *connection.ways) flow(number, way.links, parcel.bytes * way.part);
    return;
  }
  // A multicast: each link of all ways once.
  std::vector<int> links;
  for (int other = number; other >= 0; other = parcels_[other].also)
    for (const WayPart& way : *connections_[at(parcels_[other].connection)].ways)
      links.insert(links.end(), way.links.begin(), way.links.end());
  std::sort(links.begin(), links.end());
  links.erase(std::unique(links.begin(), links.end()), links.end());
  if (links.empty()) return sent(number);
  std::uint64_t key = empty_hash;
  for (const int link : links) key = add_to_hash(key, static_cast<std::uint64_t>(link));
  const std::vector<int>*& known = union_of_[key];
  if (known == nullptr || *known != links) known = &unions_.emplace_back(std::move(links));
  parcels_[number].flows = 1;
  flow(number, *known, parcel.bytes);
}

void Simulator::flow(int parcel, std::span<const int> links, double bytes) {
  const int number = shares_.add(links, bytes, now_);
  if (at(number) >= flows_.size()) flows_.resize(at(number) + 1);
  Flow& flow = flows_[at(number)];
  flow.parcel = parcel;
  flow.bytes = bytes;
  flow.links = links;
}

// All bytes have left: the port is free.
void Simulator::sent(int number) {
  const Parcel parcel = parcels_[number];
  if (parcel.whole < 0) {
    leave(number, parcel.since);
  } else {
    parcels_.give(number);
    if (--parcels_[parcel.whole].flows == 0) leave(parcel.whole, parcels_[parcel.whole].since);
  }
  ports_[at(parcel.port)].busy = false;
  serve(parcel.port);
}

// After the latency the message is there.
void Simulator::leave(int number, double since) {
  for (int here = number; here >= 0;) {
    Parcel& parcel = parcels_[here];
    const int next = parcel.also;
    const Connection& connection = connections_[at(parcel.connection)];
    if (with_timeline_) {
      const Lane& lane = lanes_[at(connection.sender)];
      result_.timeline.push_back(
          {"send", lane.collective, lane.rank, lane.channel, connection.peer, parcel.bytes, since, now_});
    }
    parcel.also = -1;
    if (connection.latency > 0)
      schedule(now_ + connection.latency, Kind::arrives, here);
    else
      arrive(here);
    here = next;
  }
}

void Simulator::arrive(int number) {
  Connection& connection = connections_[at(parcels_[number].connection)];
  parcels_[number].arrived = now_;
  parcels_.append(connection.arrived, number);
  if (!connection.awaited) return;
  connection.awaited = false;
  wake(connection.receiver);
}

}  // namespace paceline
