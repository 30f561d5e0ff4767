// How messages travel in the simulator: through a port, over their ways' links, to the lane that awaits them.
#include <algorithm>

#include "schedule/simulator_state.h"

namespace paceline {

// The port takes the next message, if it is free.
void Simulator::serve(int number) {
  Port& port = ports_[at(number)];
  if (port.busy || port.waiting.empty()) return;
  const int parcel = parcels_.pop(port.waiting);
  port.busy = true;
  parcels_[parcel].since = now_;
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
  std::uint64_t key = 1469598103934665603U;
  for (const int link : links) key = (key ^ static_cast<std::uint64_t>(link)) * 1099511628211U;
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

// All bytes have left: the port is free, and after the latency the message is there.
void Simulator::sent(int number) {
  const int port = parcels_[number].port;
  for (int here = number; here >= 0;) {
    Parcel& parcel = parcels_[here];
    const int next = parcel.also;
    const Connection& connection = connections_[at(parcel.connection)];
    if (with_timeline_) {
      const Lane& lane = lanes_[at(connection.sender)];
      result_.timeline.push_back({"send", lane.collective, lane.rank, lane.channel, connection.peer, parcel.bytes,
                                  parcels_[number].since, now_});
    }
    parcel.also = -1;
    if (connection.latency > 0)
      schedule(now_ + connection.latency, Kind::arrives, here);
    else
      arrive(here);
    here = next;
  }
  ports_[at(port)].busy = false;
  serve(port);
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
