// The simulator's state: ranks' lanes, messages on their way, and the events that move both. What it models is in
// simulator.h; the code is in three files: the events (simulator.cc), what ranks do (simulator_ranks.cc) and how
// messages travel (simulator_messages.cc).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/index.h"
#include "schedule/fair_shares.h"
#include "schedule/flow_ends.h"
#include "schedule/pool.h"
#include "schedule/simulator.h"

namespace paceline {

class Simulator {
 public:
  Simulator(WayFinder& finder, std::span<const Traffic> traffic, const Machine& machine, bool with_timeline);

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
  // A message on its way to one rank, or what of it takes one of several ways. Parcels of a multicast travel together:
  // the first carries the list of others.
  struct Parcel {
    int next = -1;
    int also = -1;
    int whole = -1;  // the parcel of which this one goes over `way`
    int way = 0;
    int message = 0;
    int connection = 0;
    int flows = 0;  // or parts, that are under way
    int port = 0;
    double bytes = 0;
    double since = 0;  // when it took the port
    double arrived = 0;
  };
  struct Connection {
    int receiver = 0;  // lane
    int sender = 0;    // lane
    int peer = 0;      // the receiving rank, as the sender calls it
    int port = -1;     // the first way's; the others' follow
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
    double bytes = 0;
    std::span<const int> links;
  };
  enum class Kind : std::uint8_t { lane, bytes_flow, arrives };
  struct Event {
    double time = 0;
    std::uint64_t order = 0;
    Kind kind = Kind::lane;
    int number = 0;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };

  void schedule(double time, Kind kind, int number) {
    events_.push_back({time, order_++, kind, number});
    std::push_heap(events_.begin(), events_.end(), Later());
  }
  [[nodiscard]] bool flow_ends_next() const {
    return !ends_.empty() && (events_.empty() || ends_.first().before(events_.front().time, events_.front().order));
  }
  [[nodiscard]] double next_time() const { return flow_ends_next() ? ends_.first().time : events_.front().time; }
  [[nodiscard]] bool is_over() const { return events_.empty() && ends_.empty(); }
  void handle_next();
  void end_flow(int number);
  void settle();
  [[nodiscard]] Status stuck() const;

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

  // What ranks do: simulator_ranks.cc
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
  void receive(const Lane& lane, int lane_number, int peer, bool reduces);
  int connection_from(int receiver, int sender_rank);
  int connection_to(int sender, int receiver_rank);
  int open(int sender, int receiver, int peer);

  // How messages travel: simulator_messages.cc
  int port_of(int gpu, Connection& connection);
  void send_in_parts(int parcel);
  void serve(int port);
  void let_flow(int parcel);
  void flow(int parcel, std::span<const int> links, double bytes);
  void sent(int parcel);
  void leave(int parcel, double since);
  void arrive(int parcel);

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
  FlowEnds ends_;
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
  std::unordered_map<std::uint64_t, const std::vector<int>*> union_of_;  // by their hash
};

}  // namespace paceline
