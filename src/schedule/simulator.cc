#include "schedule/simulator.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/wrong.h"
#include "schedule/simulator_state.h"

namespace paceline {
namespace {

std::vector<double> capacities(const Topology& topology, const Machine& machine) {
  std::vector<double> result;
  result.reserve(topology.links().size());
  for (const Link& link : topology.links()) result.push_back(link.bandwidth * 1000);
  for (const auto& [link, factor] : machine.slow_links) result[at(link)] /= factor;
  return result;
}

// Beyond these factors times are no numbers any more.
Status check_factor(const std::string& straggler, double factor) {
  if (factor >= 1 / Machine::slowest && factor <= Machine::slowest) return {};
  return wrong(fmt::format("{} cannot take {} times as long: a factor is from {} to {}", straggler, factor,
                           1 / Machine::slowest, Machine::slowest));
}

}  // namespace

Status check_stragglers(const Topology& topology, const Machine& machine) {
  const auto gpus = static_cast<int>(topology.gpus().size());
  const auto links = static_cast<int>(topology.links().size());
  for (const auto& [gpu, factor] : machine.slow_gpus) {
    if (gpu < 0 || gpu >= gpus)
      return wrong(fmt::format("GPU {} cannot take {} times as long: there are GPUs 0 to {}", gpu, factor, gpus - 1));
    PACE_TRY(check_factor(fmt::format("GPU {}", gpu), factor));
  }
  for (const auto& [link, factor] : machine.slow_links) {
    if (link < 0 || link >= links)
      return wrong(
          fmt::format("link {} cannot take {} times as long: there are links 0 to {}", link, factor, links - 1));
    const Link& slow = topology.link(link);
    PACE_TRY(check_factor(
        fmt::format("the link {} -> {}", topology.vertex(slow.from).name, topology.vertex(slow.to).name), factor));
  }
  return {};
}

Simulator::Simulator(WayFinder& finder, std::span<const Traffic> traffic, const Machine& machine, bool with_timeline)
    : finder_(finder),
      traffic_(traffic),
      machine_(machine),
      with_timeline_(with_timeline),
      shares_(capacities(finder.topology(), machine)) {}

Status Simulator::prepare() {
  const auto gpus = static_cast<int>(finder_.topology().gpus().size());
  const auto links = static_cast<int>(finder_.topology().links().size());
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
  while (!is_over()) {
    now_ = next_time();
    // What happens within a rounding error happens at once, so that flows that end together are taken away together.
    const double together = now_ + 1e-9 + 1e-12 * now_;
    while (!is_over() && next_time() <= together) {
      handle_next();
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

void Simulator::handle_next() {
  if (flow_ends_next()) {
    const int flow = ends_.first().flow;
    ends_.remove_first();
    return end_flow(flow);
  }
  std::pop_heap(events_.begin(), events_.end(), Later());
  const Event event = events_.back();
  events_.pop_back();
  switch (event.kind) {
    case Kind::lane: return wake(event.number);
    case Kind::bytes_flow: return let_flow(event.number);
    case Kind::arrives: return arrive(event.number);
  }
}

void Simulator::end_flow(int number) {
  const Flow& flow = flows_[at(number)];
  shares_.remove(number);
  for (const int link : flow.links) result_.link_bytes[at(link)] += flow.bytes;
  if (--parcels_[flow.parcel].flows == 0) sent(flow.parcel);
}

void Simulator::settle() {
  shares_.settle(now_);
  for (const int number : shares_.changed()) ends_.set({shares_.finish(number), order_++, number});
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

Result<Simulation> simulate(WayFinder& finder, std::span<const Traffic> traffic, const Machine& machine,
                            bool with_timeline) {
  PACE_TRY(check_stragglers(finder.topology(), machine));
  Simulator simulator(finder, traffic, machine, with_timeline);
  PACE_TRY(simulator.prepare());
  PACE_TRY(simulator.run());
  return std::move(simulator).result();
}

}  // namespace paceline
