#include "schedule/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <unordered_map>

#include "schedule/fair_shares.h"
#include "schedule/pool.h"

namespace paceline {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

Status wrong(std::string message) { return Status(Code::invalid_argument, std::move(message)); }

std::vector<double> capacities(const Topology& topology, const Machine& machine) {
  std::vector<double> result;
  result.reserve(topology.links().size());
  for (const Link& link : topology.links()) result.push_back(link.bandwidth * 1000);
  for (const auto& [link, factor] : machine.slow_links) result[at(link)] /= factor;
  return result;
}

class Simulator {
 public:
  Simulator(WayFinder& finder, std::span<const Traffic> traffic, const Machine& machine, bool with_timeline)
      : finder_(finder),
        traffic_(traffic),
        machine_(machine),
        with_timeline_(with_timeline),
        shares_(capacities(finder.topology(), machine)) {}

  Status prepare();
  Status run();
  Simulation result() && { return std::move(result_); }

 private:
  enum class Wait : std::uint8_t { none, time, room, message };

  // One channel of one rank.
  struct Lane {
    const Program* program = nullptr;
    std::size_t next = 0;  // act
    int collective = 0;
    int rank = 0;
    int gpu = 0;
    std::uint8_t channel = 0;
    Wait wait = Wait::none;
    bool paid = false;  // the present act's time has passed
    bool woken = false;
    std::uint32_t come = 0;  // peers of the present act whose message is there
    int under_way = 0;       // messages
    Queue sent;              // messages, the oldest first
    double since = 0;        // of the wait, or of the act's time
    double slowness = 1;
  };
  struct Message {
    int next = -1;
    int lane = 0;
    int receivers = 0;  // that have not taken it
  };
  // A message on its way to one rank. Parcels of a multicast travel together: the first carries the list of others.
  struct Parcel {
    int next = -1;
    int also = -1;
    int message = 0;
    int connection = 0;
    int flows = 0;
    int port = 0;
    double bytes = 0;
    double since = 0;  // when it took the port
    double arrived = 0;
  };
  struct Connection {
    int receiver = 0;  // lane
    int sender = 0;    // lane
    int peer = 0;      // the receiving rank, as the sender calls it
    int port = -1;
    bool awaited = false;
    double latency = 0;
    const std::vector<WayPart>* ways = nullptr;
    Queue arrived;  // parcels
  };
  struct Port {
    Queue waiting;
    bool busy = false;
  };
  struct Flow {
    int parcel = 0;
    std::uint32_t version = 0;
    double bytes = 0;
    std::span<const int> links;
  };
  enum class Kind : std::uint8_t { lane, bytes_flow, flow_ends, arrives };
  struct Event {
    double time = 0;
    std::uint64_t order = 0;
    Kind kind = Kind::lane;
    int number = 0;
    std::uint32_t version = 0;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };

  void schedule(double time, Kind kind, int number, std::uint32_t version = 0) {
    events_.push_back({time, order_++, kind, number, version});
    std::push_heap(events_.begin(), events_.end(), Later());
  }
  void handle(const Event& event);
  void wake(int lane) {
    if (lanes_[at(lane)].woken) return;
    lanes_[at(lane)].woken = true;
    ready_.push_back(lane);
  }
  void advance(int number);
  bool can_take(int number, Lane& lane, const Program::Act& act);
  [[nodiscard]] double time_of(const Lane& lane, const Program::Act& act) const;
  void take(int number, Lane& lane, const Program::Act& act);
  void send(int number, const Lane& lane, const Program::Act& act);
  void receive(const Lane& lane, int lane_number, int peer, double begin);
  int connection_from(int receiver, int sender_rank);
  int connection_to(int sender, int receiver_rank);
  int open(int sender, int receiver, int peer);
  [[nodiscard]] int lane_of(int collective, int rank, int channel) const {
    return bases_[at(collective)] + rank * max_channels + channel;
  }
  [[nodiscard]] int folded(int collective) const { return static_cast<int>(traffic_[at(collective)].programs.size()); }
  [[nodiscard]] int ranks_of(int collective) const {
    const Traffic& traffic = traffic_[at(collective)];
    return traffic.ranks > 0 ? traffic.ranks : static_cast<int>(traffic.programs.size());
  }
  [[nodiscard]] int gpu_of(int collective, int rank) const {
    const auto& gpus = traffic_[at(collective)].gpus;
    return gpus.empty() ? rank : gpus[at(rank)];
  }
  void serve(int port);
  void let_flow(int parcel);
  void flow(int parcel, std::span<const int> links, double bytes);
  void sent(int parcel);
  void arrive(int parcel);
  void settle();
  [[nodiscard]] Status stuck() const;

  WayFinder& finder_;
  std::span<const Traffic> traffic_;
  const Machine& machine_;
  bool with_timeline_;
  FairShares shares_;
  Simulation result_;
  Status error_;

  double now_ = 0;
  std::uint64_t order_ = 0;
  std::vector<Event> events_;  // a heap
  std::vector<int> ready_;
  std::vector<int> bases_;
  std::vector<Lane> lanes_;
  Pool<Message> messages_;
  Pool<Parcel> parcels_;
  std::vector<Connection> connections_;
  std::unordered_map<std::uint64_t, int> numbers_;  // of connections, by receiving lane and sending rank
  std::vector<Port> ports_;
  std::vector<int> port_of_gpu_;
  std::vector<Flow> flows_;                                              // by number in shares_
  std::deque<std::vector<int>> unions_;                                  // links of multicasts
  std::unordered_map<std::uint64_t, const std::vector<int>*> union_of_;  // by sending lane and first peer's place
};

Status Simulator::prepare() {
  const auto gpus = static_cast<int>(finder_.topology().gpus().size());
  const auto links = static_cast<int>(finder_.topology().links().size());
  for (const auto& [gpu, factor] : machine_.slow_gpus)
    if (gpu < 0 || gpu >= gpus || !(factor > 0))
      return wrong(fmt::format("GPU {} cannot take {} times as long: there are GPUs 0 to {}", gpu, factor, gpus - 1));
  for (const auto& [link, factor] : machine_.slow_links)
    if (link < 0 || link >= links || !(factor > 0))
      return wrong(
          fmt::format("link {} cannot take {} times as long: there are links 0 to {}", link, factor, links - 1));
  result_.ends.resize(traffic_.size());
  result_.link_bytes.resize(at(links));
  port_of_gpu_.assign(at(gpus), -1);
  for (std::size_t c = 0; c < traffic_.size(); ++c) {
    const Traffic& traffic = traffic_[c];
    const int collective = static_cast<int>(c);
    bases_.push_back(static_cast<int>(lanes_.size()));
    result_.ends[c] = traffic.begin;
    if (!traffic.gpus.empty() && static_cast<int>(traffic.gpus.size()) != ranks_of(collective))
      return wrong(fmt::format("{} GPUs are named for {} ranks", traffic.gpus.size(), ranks_of(collective)));
    for (int r = 0; r < ranks_of(collective); ++r)
      if (gpu_of(collective, r) < 0 || gpu_of(collective, r) >= gpus)
        return wrong(
            fmt::format("rank {} is on GPU {}: this topology has GPUs 0 to {}", r, gpu_of(collective, r), gpus - 1));
    for (int r = 0; r < folded(collective); ++r) {
      const int gpu = gpu_of(collective, r);
      const auto slow = machine_.slow_gpus.find(gpu);
      for (int channel = 0; channel < max_channels; ++channel) {
        Lane lane;
        lane.program = &traffic.programs[at(r)];
        lane.collective = collective;
        lane.rank = r;
        lane.gpu = gpu;
        lane.channel = static_cast<std::uint8_t>(channel);
        lane.slowness = slow == machine_.slow_gpus.end() ? 1 : slow->second;
        lane.wait = Wait::time;
        lane.paid = false;
        lanes_.push_back(lane);
        if (channel < lane.program->channels)
          schedule(traffic.begin, Kind::lane, static_cast<int>(lanes_.size()) - 1);
        else
          lanes_.back().next = lane.program->acts.size();
      }
    }
  }
  return {};
}

Status Simulator::run() {
  while (!events_.empty()) {
    now_ = events_.front().time;
    // What happens within a rounding error happens at once, so that flows that end together are taken away together.
    const double together = now_ + 1e-9 + 1e-12 * now_;
    while (!events_.empty() && events_.front().time <= together) {
      std::pop_heap(events_.begin(), events_.end(), Later());
      const Event event = events_.back();
      events_.pop_back();
      handle(event);
      while (!ready_.empty()) {
        const int lane = ready_.back();
        ready_.pop_back();
        lanes_[at(lane)].woken = false;
        advance(lane);
      }
      if (!error_.ok()) return error_;
    }
    settle();
  }
  PACE_TRY(stuck());
  for (const double end : result_.ends) result_.time = std::max(result_.time, end);
  result_.link_peaks = shares_.peaks();
  for (std::size_t l = 0; l < result_.link_peaks.size(); ++l)
    if (result_.link_peaks[l] > 1 + 1e-9)
      return Status(Code::internal, fmt::format("link {} was loaded {} times its bandwidth", l, result_.link_peaks[l]));
  return {};
}

void Simulator::handle(const Event& event) {
  switch (event.kind) {
    case Kind::lane: wake(event.number); break;
    case Kind::bytes_flow: let_flow(event.number); break;
    case Kind::arrives: arrive(event.number); break;
    case Kind::flow_ends: {
      Flow& flow = flows_[at(event.number)];
      if (flow.version != event.version) return;
      ++flow.version;
      shares_.remove(event.number);
      for (const int link : flow.links) result_.link_bytes[at(link)] += flow.bytes;
      if (--parcels_[flow.parcel].flows == 0) sent(flow.parcel);
      break;
    }
  }
}

void Simulator::settle() {
  shares_.settle(now_);
  for (const int number : shares_.changed())
    schedule(shares_.finish(number), Kind::flow_ends, number, ++flows_[at(number)].version);
}

// ---- Ranks ----

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
  for (std::uint32_t i = 0; act.action != Action::copy && i < act.peer_count; ++i)
    receive(lane, number, lane.program->peers[act.first_peer + i], lane.since);
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
    int& port = machine_.ports == Ports::one ? port_of_gpu_[at(lane.gpu)] : connections_[at(connection)].port;
    if (port < 0) {
      port = static_cast<int>(ports_.size());
      ports_.emplace_back();
    }
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

void Simulator::receive(const Lane& lane, int lane_number, int peer, double begin) {
  Connection& connection = connections_[at(connection_from(lane_number, peer))];
  const int parcel = parcels_.pop(connection.arrived);
  const int message = parcels_[parcel].message;
  if (with_timeline_)
    result_.timeline.push_back({"recv", lane.collective, lane.rank, lane.channel, peer, parcels_[parcel].bytes,
                                std::max(begin, parcels_[parcel].arrived), now_});
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
    error_ = wrong(fmt::format("there is no way from GPU {} to GPU {}", from, to));
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

// ---- Messages ----

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

Status Simulator::stuck() const {
  for (const Lane& lane : lanes_) {
    for (std::size_t next = lane.next; next < lane.program->acts.size(); ++next) {
      const Program::Act& act = lane.program->acts[next];
      if (act.channel != lane.channel) continue;
      const std::string whom =
          act.peer_count > 0 ? fmt::format(" with rank {}", lane.program->peers[act.first_peer]) : "";
      return wrong(fmt::format("rank {} waits for ever in step {} ({}{})", lane.rank, next, name(act.action), whom));
    }
  }
  return {};
}

}  // namespace

Result<Simulation> simulate(WayFinder& finder, std::span<const Traffic> traffic, const Machine& machine,
                            bool with_timeline) {
  Simulator simulator(finder, traffic, machine, with_timeline);
  PACE_TRY(simulator.prepare());
  PACE_TRY(simulator.run());
  return std::move(simulator).result();
}

}  // namespace paceline
