#include "schedule/traffic.h"

#include <algorithm>

namespace paceline {

Program::Program(Schedule& schedule, int rank, std::size_t element_bytes) : channels(schedule.channels()) {
  const auto steps = schedule.steps(rank);
  acts.reserve(steps.size());
  for (const Step& step : steps) {
    Act act;
    act.action = step.action;
    act.channel = step.channel;
    act.own = step.own >= 0;
    act.first_peer = static_cast<std::uint32_t>(peers.size());
    act.peer_count = step.peer_count;
    act.bytes = static_cast<double>(step.elements() * element_bytes);
    const auto with = schedule.peers(rank, step);
    // Peers of step after step are mostly the same.
    if (peers.size() >= with.size() && std::equal(with.begin(), with.end(), peers.end() - std::ssize(with)))
      act.first_peer -= act.peer_count;
    else
      peers.insert(peers.end(), with.begin(), with.end());
    acts.push_back(act);
  }
}

Traffic traffic_of(Schedule& schedule, std::size_t element_bytes, std::vector<int> gpus) {
  Traffic traffic;
  traffic.name = title(schedule.problem().collective);
  traffic.gpus = std::move(gpus);
  for (int rank = 0; rank < schedule.ranks(); ++rank) traffic.programs.emplace_back(schedule, rank, element_bytes);
  return traffic;
}

bool same_shifted(std::span<const Program> programs, std::span<const Program> others, int first, int ranks) {
  for (std::size_t r = 0; r < programs.size(); ++r) {
    const Program& one = programs[r];
    const Program& other = others[r];
    if (one.acts.size() != other.acts.size() || one.channels != other.channels) return false;
    for (std::size_t i = 0; i < one.acts.size(); ++i) {
      const Program::Act& a = one.acts[i];
      const Program::Act& b = other.acts[i];
      if (a.action != b.action || a.channel != b.channel || a.own != b.own || a.peer_count != b.peer_count ||
          a.bytes != b.bytes)
        return false;
      for (std::uint32_t p = 0; p < a.peer_count; ++p)
        if ((one.peers[a.first_peer + p] + first) % ranks != other.peers[b.first_peer + p]) return false;
    }
  }
  return true;
}

}  // namespace paceline
