#include "tuning/prediction/step_limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <set>

namespace paceline {
namespace {

// A connection takes the memory of so many steps: about 950 bytes for 95.
constexpr double steps_of_a_connection = 10;
constexpr double most_steps_counted = 1e9;

// Costs are then the steps of the busiest rank.
CostModel counting(CostModel model) {
  model.call = model.start = model.node_start = 0;
  model.partner = model.board = model.receiver = model.switching = 0;
  model.step = 1;
  model.bandwidth = model.reduce_bandwidth = model.write_bandwidth = model.copy_bandwidth = 1e300;
  model.cable = model.stream = 1e300;
  return model;
}

std::size_t peers_of(const Program& program) {
  return std::set<int>(program.peers.begin(), program.peers.end()).size();
}

bool fits_in_memory(const Effort& effort) {
  return effort.steps + steps_of_a_connection * effort.connections <= most_steps_by_name;
}

double chunks(const Problem& problem, std::size_t chunk) {
  return static_cast<double>(problem.count) / static_cast<double>(chunk);
}

}  // namespace

double steps_of(const Algorithm& algorithm, const Problem& problem, const Parameters& parameters,
                const CostModel& model) {
  // Ranks that share a CPU take the steps of all in turn: of a rooted collective most ranks have few. So many times
  // over, that the filling of a pipeline, which formulas add to them, does not count.
  constexpr double times = 1e6;
  CostModel shared = counting(model);
  shared.sharing = times * problem.ranks;
  return algorithm.cost(problem, parameters, shared) / times;
}

// What formulas say of rounds in which messages have many parts is too much: they count parts. The first rank, the one
// half way round and the last one stand for all: in steps the busiest of them, and in connections the one with fewest
// peers, for a root has them alone.
Effort effort_of(const Algorithm& algorithm, const Problem& problem, const Parameters& parameters,
                 const CostModel& model, std::size_t element_bytes) {
  const double formula = steps_of(algorithm, problem, parameters, model);
  if (formula <= most_steps || formula > most_steps_counted) return {.steps = formula};
  // One rank's steps alone may be too many to write down.
  if (algorithm.cost(problem, parameters, counting(model)) > most_steps) return {.steps = formula};
  std::size_t steps = 0;
  std::size_t peers = std::numeric_limits<std::size_t>::max();
  for (const int rank : {0, problem.ranks / 2, problem.ranks - 1}) {
    Schedule schedule(problem, parameters, rank);
    algorithm.write(schedule);
    const Program program(schedule, rank, element_bytes);
    steps = std::max(steps, program.acts.size());
    peers = std::min(peers, peers_of(program));
  }
  return {.steps = std::min(formula, static_cast<double>(steps) * problem.ranks),
          .connections = static_cast<double>(peers) * problem.ranks};
}

Effort effort_of(const std::vector<Traffic>& traffic) {
  Effort effort;
  for (const Traffic& each : traffic) {
    for (const Program& program : each.programs) {
      effort.steps += static_cast<double>(program.acts.size());
      effort.connections += static_cast<double>(peers_of(program));
    }
  }
  return effort;
}

Effort Efforts::of(const Algorithm& algorithm, std::string_view name, const Problem& problem,
                   const Parameters& parameters, const CostModel& model, std::size_t element_bytes) const {
  const auto known = too_much_.find(name);
  if (known != too_much_.end() && problem.count >= known->second.count &&
      chunks(problem, parameters.chunk) >= known->second.chunks)
    return known->second.effort;
  return effort_of(algorithm, problem, parameters, model, element_bytes);
}

void Efforts::was_too_much(std::string_view name, const Problem& problem, std::size_t chunk, const Effort& effort) {
  too_much_.try_emplace(std::string(name), Counted{problem.count, chunks(problem, chunk), effort});
}

std::string too_many(double steps) { return fmt::format("{:.0f} steps are too many to simulate", steps); }

std::string too_many_steps(const Effort& effort, bool by_name) {
  if (effort.steps <= (by_name ? most_steps_by_name : most_steps)) return {};
  const bool would_be = !by_name && effort.steps <= most_steps_by_name && fits_in_memory(effort);
  return too_many(effort.steps) + (would_be ? "; ask for it by name" : "");
}

std::string too_many_connections(const Effort& effort, bool by_name) {
  if (!fits_in_memory(effort))
    return fmt::format("its {:.0f} connections and {:.0f} steps take too much memory to simulate", effort.connections,
                       effort.steps);
  if (by_name || effort.connections <= most_connections) return {};
  return fmt::format("its {:.0f} connections take long to simulate; ask for it by name", effort.connections);
}

}  // namespace paceline
