// What is between the communicator's ranks, where the user knows it: PACELINE_TOPOLOGY.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/configuration.h"
#include "base/index.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "topology/topology_text.h"

namespace paceline {
namespace {

// A rank is on the GPU of its number in the job, which other communicators number otherwise. Where no launcher says
// one, or threads of one process have the same, it is that in the session.
std::vector<int> gpus_of(const std::vector<int>& job_ranks) {
  std::vector<int> sorted = job_ranks;
  std::ranges::sort(sorted);
  if (sorted.front() >= 0 && std::ranges::adjacent_find(sorted) == sorted.end()) return job_ranks;
  std::iota(sorted.begin(), sorted.end(), 0);
  return sorted;
}

}  // namespace

Status Communicator::check_places() const {
  const Announced& announced = connections_.announced;
  const int last = std::ranges::max(gpus_of(connections_.job_ranks));
  if (announced.topology == 0 || static_cast<std::size_t>(last) < announced.gpus) return {};
  return {Code::invalid_usage,
          fmt::format("PACELINE_TOPOLOGY of rank 0 has {} GPUs, but there is a rank {}: rank r is on GPU r",
                      announced.gpus, last)};
}

Status Communicator::use_topology(std::string_view text) {
  auto topology = read_topology(text);
  PACE_TRY(topology.status());
  std::vector<int> gpus = gpus_of(connections_.job_ranks);
  if (const std::string why = reason_against(*topology, gpus); !why.empty()) {
    if (rank() == 0) log(LogLevel::warn, rank(), "{} is not used: {}", configuration().topology, why);
    return {};
  }
  log(LogLevel::info, rank(), "a topology of {} GPUs; this rank is on GPU {}", topology->gpus().size(),
      gpus[at(rank())]);
  follow(std::make_shared<const Topology>(std::move(*topology)), std::move(gpus));
  return {};
}

// What of it cannot be true, or can be of no use. Empty: nothing.
std::string Communicator::reason_against(const Topology& topology, std::span<const int> gpus) const {
  const auto& members = session_->members();
  const auto node = [&](int r) { return topology.vertex(topology.gpus()[at(gpus[at(r)])]).node; };
  // A file of one node may be of a network, whose machines are its GPUs.
  for (int r = 1; r < size() && topology.nodes() > 1; ++r) {
    for (int other = 0; other < r; ++other) {
      if (node(other) == node(r) && members[at(other)].node != members[at(r)].node)
        return fmt::format("ranks {} and {} are on two machines, but there on one node", other, r);
    }
  }
  const auto part = select(topology, gpus);
  return part.ok() ? "" : part.status().message();
}

void Communicator::follow(std::shared_ptr<const Topology> topology, std::vector<int> gpus) {
  topology_ = std::move(topology);
  gpus_ = std::move(gpus);
  paths_ = topology_ == nullptr || size() < 2 ? nullptr : std::make_shared<Paths>(*topology_, gpus_);
  plans_.clear();
}

}  // namespace paceline
