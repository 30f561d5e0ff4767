#include "tuning/prediction/predictor.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/listed.h"
#include "base/wrong.h"
#include "topology/arborescences.h"
#include "tuning/prediction/symmetry.h"
#include "tuning/prediction/topology_costs.h"

namespace paceline {
namespace {

double bus_factor(Collective which, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  return which == Collective::all_reduce ? 2 * others : parts_count(which) ? others : 1;
}

std::size_t longest_message(const std::vector<Traffic>& traffic) {
  double longest = 0;
  for (const Traffic& each : traffic)
    for (const Program& program : each.programs)
      for (const Program::Act& act : program.acts)
        if (act.action == Action::send) longest = std::max(longest, act.bytes);
  return static_cast<std::size_t>(longest);
}

}  // namespace

bool parts_count(Collective which) {
  using enum Collective;
  return which == all_gather || which == reduce_scatter || which == all_to_all || which == gather || which == scatter;
}

Problem problem_of(const Question& question, int ranks, std::size_t bytes) {
  Problem problem{.collective = question.collective, .ranks = ranks, .root = question.root};
  problem.in_place = may_be_in_place(question.collective);
  if (question.collective == Collective::barrier || bytes == 0) return problem;
  const std::size_t parts = parts_count(question.collective) ? at(ranks) : 1;
  problem.count = std::max<std::size_t>(1, bytes / (parts * question.element_bytes));
  return problem;
}

Prediction row_of(const Question& question, const Problem& problem, std::string_view algorithm, double time) {
  Prediction row;
  row.algorithm = algorithm;
  row.count = problem.count;
  row.bytes = problem.count * question.element_bytes * (parts_count(problem.collective) ? at(problem.ranks) : 1);
  row.time_us = time;
  row.algbw_gbs = time > 0 ? static_cast<double>(row.bytes) / time / 1000 : 0;
  row.busbw_gbs = row.algbw_gbs * bus_factor(problem.collective, problem.ranks);
  return row;
}

std::vector<std::string_view> names_that_serve(const Problem& problem) {
  std::vector<std::string_view> names;
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.finds == nullptr && serves(algorithm, problem)) names.push_back(algorithm.name);
  return names;
}

Status no_algorithm(const Question& question, const Problem& problem, const std::vector<std::string_view>& names) {
  return wrong(fmt::format("there is no algorithm '{}' for {} on {} {}: take one of {}, or all", question.algorithm,
                           title(problem.collective), problem.ranks, problem.ranks == 1 ? "rank" : "ranks",
                           listed(names)));
}

Predictor::Predictor(Topology topology, const Question& question)
    : topology_(std::move(topology)), question_(question), finder_(topology_), folded_(topology_) {
  const bool all =
      question.gpus.size() == topology_.gpus().size() && std::is_sorted(question.gpus.begin(), question.gpus.end());
  // Of one part's ranks there are neither all links nor all timelines.
  if (all && !question.in_detail && question.machine.slow_gpus.empty() && question.machine.slow_links.empty())
    period_ = folded_.fold();
  model_ = cost_model_of(finder_, question_.gpus, question.machine, question.element_bytes);
  model_.paths = std::make_shared<Paths>(topology_, question_.gpus);
}

// Simulates, and notes the row.
Status Predictor::run(WayFinder& finder, std::vector<Traffic> traffic, const Problem& problem, std::string_view name) {
  if (is_left_out(name, too_many_connections(effort_of(traffic), by_name(name)))) return {};
  auto result = simulate(finder, traffic, question_.machine, question_.in_detail);
  if (!result.ok()) return unless_unsupported(name, result.status());
  note(finder.topology(), std::move(*result), std::move(traffic), problem, name, &finder != &folded_);
  return {};
}

double Predictor::bandwidth_of(const Topology& topology, std::size_t link) const {
  const auto slow = question_.machine.slow_links.find(static_cast<int>(link));
  const double bandwidth = topology.links()[link].bandwidth;
  return slow == question_.machine.slow_links.end() ? bandwidth : bandwidth / slow->second;
}

std::vector<LinkLoad> Predictor::loads_of(const Topology& topology, const Simulation& result) const {
  std::vector<LinkLoad> loads;
  for (std::size_t l = 0; l < result.link_bytes.size(); ++l) {
    if (result.link_bytes[l] == 0) continue;
    const Link& link = topology.links()[l];
    const double gbs = bandwidth_of(topology, l);
    loads.push_back({topology.vertex(link.from).name, topology.vertex(link.to).name, gbs, result.link_bytes[l],
                     result.link_bytes[l] / (gbs * 1000) / result.time});
  }
  return loads;
}

// `whole`: all ranks were simulated.
void Predictor::note(const Topology& topology, Simulation result, std::vector<Traffic> traffic, const Problem& problem,
                     std::string_view name, bool whole) {
  Prediction row = row_of(question_, problem, name, result.time);
  row.method = "simulated";
  row.chunk_bytes = problem.count > 0 ? longest_message(traffic) : 0;  // a barrier's messages are tokens
  for (std::size_t l = 0; l < result.link_bytes.size() && result.time > 0; ++l) {
    const double share = result.link_bytes[l] / (bandwidth_of(topology, l) * 1000) / result.time;
    if (share <= row.busiest_share * (1 + 1e-9)) continue;
    const Link& link = topology.links()[l];
    row.busiest_share = share;
    row.busiest_link = fmt::format("{} -> {}", topology.vertex(link.from).name, topology.vertex(link.to).name);
  }
  if (whole && (question_.with_links || question_.in_detail)) row.links = loads_of(topology, result);
  answer_.rows.push_back(std::move(row));
  if (question_.in_detail) {
    answer_.simulation = std::move(result);
    answer_.traffic = std::move(traffic);
  }
}

// Says once why there is no row, also of several sizes.
void Predictor::leave_out(std::string_view name, std::string_view reason) {
  std::string line = fmt::format("{}: {}", name, reason);
  if (std::ranges::find(answer_.left_out, line) == answer_.left_out.end()) answer_.left_out.push_back(std::move(line));
}

// What an algorithm needs and this topology does not have, such as a way between two GPUs, is no reason to say nothing
// of the others.
Status Predictor::unless_unsupported(std::string_view name, const Status& status) {
  if (status.code() != Code::unsupported) return status;
  leave_out(name, status.message());
  return {};
}

// For this reason, if there is one, which it then says.
bool Predictor::is_left_out(std::string_view name, std::string_view reason, std::string_view advice) {
  if (!reason.empty()) leave_out(name, fmt::format("{}{}", reason, advice));
  return !reason.empty();
}

Status Predictor::add_row(const Algorithm& algorithm, std::string_view name, const Problem& problem,
                          Parameters parameters) {
  const std::size_t own = parameters.chunk = asked_chunk().value_or(parameters.chunk);
  // Chunks are lengthened until there are no more steps than this.
  const double enough = by_name(name) ? enough_steps_by_name : most_steps;
  const double most = by_name(name) ? most_steps_by_name : most_steps;
  const double steps = steps_of(algorithm, problem, parameters, model_);
  const bool may_be_fewer = !asked_chunk() && parameters.chunk < problem.count;
  std::string advice;
  if (period_ > 0 && steps > most_steps / 100 && steps * period_ / problem.ranks <= (may_be_fewer ? enough : most)) {
    Problem even = problem;
    if (!parts_count(problem.collective)) even.count = even_count(problem);
    if (even.count - problem.count > problem.count / 100) {
      if (seems_symmetric(algorithm, even, parameters, question_.element_bytes, period_))
        advice = fmt::format("; of {} bytes, which make equal blocks, one part's ranks would stand for all",
                             even.count * question_.element_bytes);
    } else if (auto traffic = symmetric_traffic(algorithm, even, parameters, question_.element_bytes, period_)) {
      std::vector<Traffic> one;
      one.push_back(std::move(*traffic));
      return run(folded_, std::move(one), problem, name);
    }
  }
  Effort effort = efforts_.of(algorithm, name, problem, parameters, model_, question_.element_bytes);
  for (int times = 0; effort.steps > enough && !asked_chunk() && times < 24; ++times) {
    parameters.chunk += parameters.chunk / 4 + 1;
    effort.steps = std::min(effort.steps, steps_of(algorithm, problem, parameters, model_));
  }
  if (is_left_out(name, too_many_steps(effort, by_name(name)), advice) ||
      is_left_out(name, too_many_connections(effort, by_name(name)))) {
    efforts_.was_too_much(name, problem, own, effort);
    return {};
  }
  Schedule schedule(problem, parameters);
  algorithm.write(schedule);
  std::vector<Traffic> traffic;
  traffic.push_back(traffic_of(schedule, question_.element_bytes, question_.gpus));
  const std::size_t rows = answer_.rows.size();
  PACE_TRY(run(finder_, std::move(traffic), problem, name));
  const std::size_t own_bytes = own * question_.element_bytes;
  if (parameters.chunk > own && answer_.rows.size() > rows && answer_.rows.back().chunk_bytes > own_bytes)
    answer_.rows.back().own_chunk_bytes = own_bytes;
  return {};
}

Status Predictor::add_table(const Problem& problem) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.finds != nullptr || !asked(algorithm.name) || !serves(algorithm, problem)) continue;
    Parameters parameters = algorithm.parameters(problem, model_);
    if (question_.radix > 0 && algorithm.has_radix)
      parameters.radix = std::clamp(question_.radix, 2, std::max(2, problem.ranks));
    const std::size_t rows = answer_.rows.size();
    PACE_TRY(add_row(algorithm, algorithm.name, problem, parameters));
    if (algorithm.has_radix && answer_.rows.size() > rows) answer_.rows.back().radix = parameters.radix;
  }
  return {};
}

std::span<const Predictor::Further> Predictor::further() {
  static constexpr bool by_name_alone = true;
  static constexpr Further rows[] = {
      {"topology_chain", [](const Problem& p) { return serves(*algorithm_named("pipelined_chain"), p); },
       &Predictor::add_chain, !by_name_alone},
      {"packed_trees", [](const Problem& p) { return Paths::has_trees(p.collective); }, &Predictor::add_trees,
       !by_name_alone},
      {"rings", [](const Problem& p) { return serves(*algorithm_named("ring"), p) && p.ranks > 1; },
       &Predictor::add_rings, !by_name_alone},
      {"multicast", [](const Problem& p) { return p.collective == Collective::broadcast; }, &Predictor::add_multicast,
       by_name_alone},
      {"reduction_server", [](const Problem& p) { return p.collective == Collective::all_reduce; },
       &Predictor::add_reduction_server, by_name_alone},
  };
  return rows;
}

Status Predictor::add_size(const Problem& problem) {
  if (question_.sources > 0) return add_sources(problem);
  PACE_TRY(add_table(problem));
  for (const Further& row : further())
    if (row.serves(problem) && (row.by_name_alone ? by_name(row.name) : asked(row.name)))
      PACE_TRY((this->*row.add)(problem));
  return {};
}

// Of all that add_size() knows.
std::vector<std::string_view> Predictor::names(const Problem& problem) const {
  std::vector<std::string_view> names = names_that_serve(problem);
  for (const Further& row : further())
    if (row.serves(problem)) names.push_back(row.name);
  return names;
}

Result<Answer> Predictor::answer() {
  for (const std::size_t bytes : question_.sizes) {
    const std::size_t before = answer_.rows.size();
    PACE_TRY(add_size(problem_of(question_, ranks(), bytes)));
    for (std::size_t row = before; row < answer_.rows.size(); ++row) answer_.rows[row].asked_bytes = bytes;
  }
  if (answer_.rows.empty()) {
    if (!answer_.left_out.empty()) return wrong(listed(answer_.left_out, "\n"));
    if (question_.sources > 0)
      return wrong(fmt::format("there is no algorithm '{}' for several sources: they have knomial, ring and multicast",
                               question_.algorithm));
    const Problem problem = problem_of(question_, ranks(), question_.sizes[0]);
    return no_algorithm(question_, problem, names(problem));
  }
  return std::move(answer_);
}

}  // namespace paceline
