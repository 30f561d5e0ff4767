#include "tuning/prediction/prediction.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/index.h"
#include "base/wrong.h"
#include "tuning/prediction/closed_forms.h"
#include "tuning/prediction/predictor.h"
#include "tuning/prediction/sources.h"
#include "tuning/prediction/topology_costs.h"

namespace paceline {
namespace {

constexpr int most_ranks = 1 << 16;  // by a model alone, as nodes of a topology
constexpr double most_steps_of_sources = 1e5;

// How many times as long bytes take on links of which some parts are slow: hardware gives each part what it can carry.
std::map<int, double> slow_links_of_merged(const std::map<int, double>& slow_links, const Topology& whole,
                                           const std::vector<int>& part_of) {
  std::map<int, double> slow;
  for (const auto& [part, factor] : slow_links) slow[part_of[at(part)]] = factor;
  for (auto& [merged, slowness] : slow) {
    int parts = 0;
    double bandwidth = 0;
    double left = 0;
    for (std::size_t l = 0; l < part_of.size(); ++l) {
      if (part_of[l] != merged) continue;
      const auto factor = slow_links.find(static_cast<int>(l));
      const double own = whole.links()[l].bandwidth;
      ++parts;
      bandwidth += own;
      left += factor == slow_links.end() ? own : own / factor->second;
    }
    if (parts > 1) slowness = bandwidth / left;
  }
  return slow;
}

Status check(const Question& question, int ranks) {
  if (question.sizes.empty()) return wrong("no sizes are given");
  for (const std::size_t size : question.sizes)
    if (size > std::size_t{1} << 46) return wrong(fmt::format("{} bytes are more than memory can hold", size));
  if (question.root < 0 || question.root >= ranks)
    return wrong(fmt::format("root {} is none of the {} ranks", question.root, ranks));
  if (question.sources < 0 || question.sources > ranks)
    return wrong(fmt::format("{} sources: there are {} ranks", question.sources, ranks));
  if (question.sources > 0 && question.collective != Collective::broadcast)
    return wrong("several sources are for broadcast");
  if (question.radix != 0) {
    if (question.radix < 2) return wrong(fmt::format("radix is {}: give 2 or more", question.radix));
    if (question.sources > 0) return wrong("several sources have no radix to be asked for");
    if (const Algorithm* named = algorithm_named(question.algorithm)) PACE_TRY(check_has_radix(*named));
  }
  if (question.servers < 0) return wrong(fmt::format("servers is {}: give 0 or more", question.servers));
  if (question.in_detail && (question.sizes.size() != 1 || question.algorithm == "all"))
    return wrong("links and timelines are of one algorithm at one size");
  return {};
}

// What a prediction by a model stands on.
std::string_view method_of(const Choice& choice, const Problem& problem, const CostModel& model, const Tuned* tuned) {
  if (tuned == nullptr || !tuned->corrects(*choice.algorithm, problem.collective)) return "model";
  const bool other_type = reduces(problem.collective) && model.element != measured_element;
  const std::size_t bytes = problem.count * model.element;
  const bool inside = tuned->measured(*choice.algorithm, problem.collective, bytes, choice.variant);
  return inside && !other_type ? "measured" : "estimated";
}

}  // namespace

void Predictor::add_formula(std::string_view name, const Problem& problem, double time) {
  if (!question_.machine.slow_gpus.empty() || !question_.machine.slow_links.empty())
    return leave_out(name, "its formula knows no slow GPUs and links");
  Prediction row = row_of(question_, problem, name, problem.count > 0 && ranks() > 1 ? time : 0);
  row.method = "formula";
  answer_.rows.push_back(std::move(row));
}

Status Predictor::add_reduction_server(const Problem& problem) {
  const NodeRates nodes = node_rates(finder_, question_.gpus, question_.machine, model_);
  const auto bytes = static_cast<double>(problem.count * question_.element_bytes);
  const closed_forms::Rates worker{.start = model_.start + question_.machine.delay, .bandwidth = nodes.shared};
  const int servers = question_.servers > 0 ? question_.servers : ranks();
  add_formula("reduction_server", problem,
              closed_forms::reduction_server(bytes, ranks(), servers, nodes.alone, worker));
  return {};
}

// Of one source, or several. Ranks that share a NIC get what comes through it once.
Status Predictor::add_multicast(const Problem& problem) {
  if (question_.timed) {
    leave_out("multicast", "its formula has its datagrams' own start and delay, and takes no other (--start, --delay)");
    return {};
  }
  const NodeRates nodes = node_rates(finder_, question_.gpus, question_.machine, model_);
  const closed_forms::Multicast rates{.pcie = nodes.pcie, .host = nodes.alone};
  const auto bytes = static_cast<double>(problem.count * question_.element_bytes);
  add_formula("multicast", problem,
              question_.sources > 0 ? closed_forms::multicast_sources(bytes, question_.sources, ranks(), rates)
                                    : closed_forms::multicast_streamed(bytes, ranks(), rates));
  return {};
}

Status Predictor::add_sources(const Problem& problem) {
  // Each message waits for the one before it to arrive.
  const closed_forms::Rates rates{.start = model_.start + question_.machine.delay, .bandwidth = model_.bandwidth};
  const Sources sources{question_.sources, problem.count, question_.element_bytes, question_.gpus};
  const auto bytes = static_cast<double>(problem.count * question_.element_bytes);
  const int m = question_.sources;
  constexpr std::size_t longest = 512 << 10;
  const double chunk = std::min(bytes, static_cast<double>(longest));
  const std::size_t before = answer_.rows.size();
  const auto add = [&](std::string_view name, const Result<double>& time) {
    PACE_TRY(unless_unsupported(name, time.status()));
    if (!time.ok()) return Status();
    answer_.rows.push_back(row_of(question_, problem, name, bytes > 0 && ranks() > 1 ? *time : 0));
    answer_.rows.back().method = "simulated";
    return Status();
  };
  const double messages = 2.0 * m * (ranks() - 1);
  if (asked("knomial")) {
    if (messages * std::ceil(bytes / std::max(chunk, 1.0)) <= most_steps_of_sources)
      PACE_TRY(add("knomial", knomial_sources_time(finder_, question_.machine, sources,
                                                   std::max<std::size_t>(1, longest / question_.element_bytes))));
    else
      add_formula("knomial", problem, m * closed_forms::knomial_in_chunks(bytes, chunk, ranks(), 2, rates));
  }
  if (asked("ring")) {
    if (messages <= most_steps_of_sources)
      PACE_TRY(add("ring", ring_sources_time(finder_, question_.machine, sources)));
    else
      add_formula("ring", problem, closed_forms::ring_sources(bytes, ranks(), rates));
  }
  if (asked("multicast")) PACE_TRY(add_multicast(problem));
  for (std::size_t row = before; row < answer_.rows.size(); ++row) {
    answer_.rows[row].algbw_gbs *= m;
    answer_.rows[row].busbw_gbs *= m;
  }
  return {};
}

Result<Answer> predict(const Topology& topology, const Question& question) {
  const auto known = static_cast<int>(topology.gpus().size());
  if (question.gpus.empty()) return wrong("no GPU is named");
  std::set<int> seen;
  for (const int gpu : question.gpus) {
    if (gpu < 0 || gpu >= known)
      return wrong(fmt::format("there is no GPU {}: this topology has GPUs 0 to {}", gpu, known - 1));
    if (!seen.insert(gpu).second) return wrong(fmt::format("GPU {} is named twice", gpu));
  }
  PACE_TRY(check(question, static_cast<int>(question.gpus.size())));
  PACE_TRY(check_stragglers(topology, question.machine));
  std::vector<int> part_of;
  Topology merged = with_one_nvswitch(topology, &part_of);
  Question of_merged = question;
  of_merged.machine.slow_links = slow_links_of_merged(question.machine.slow_links, topology, part_of);
  return Predictor(std::move(merged), of_merged).answer();
}

Result<Answer> predict(const CostModel& model, int ranks, const Question& question, const Tuned* tuned) {
  if (ranks < 1) return wrong(fmt::format("ranks is {}: give 1 or more", ranks));
  if (ranks > most_ranks) return wrong(fmt::format("{} ranks: at most {}", ranks, most_ranks));
  PACE_TRY(check(question, ranks));
  if (question.in_detail) return wrong("links and timelines need a topology");
  if (question.sources > 0) return wrong("several sources need a topology");
  Answer answer;
  CostModel of_type = model;
  of_type.element = question.element_bytes;
  for (const std::size_t bytes : question.sizes) {
    Problem problem = problem_of(question, ranks, bytes);
    if (tuned != nullptr) problem.in_place = false;  // as it was measured
    for (const Algorithm& algorithm : algorithms()) {
      if (!serves(algorithm, problem) || (question.algorithm != "all" && question.algorithm != algorithm.name))
        continue;
      const Variant asked{.chunk = question.chunk_bytes, .radix = algorithm.has_radix ? question.radix : 0};
      const auto choice = choose(problem, of_type, algorithm.name, asked, tuned);
      PACE_TRY(choice.status());
      Prediction row = row_of(question, problem, algorithm.name, choice->predicted_us);
      row.method = method_of(*choice, problem, of_type, tuned);
      row.asked_bytes = bytes;
      row.chunk_bytes = std::min(choice->parameters.chunk, problem.count) * of_type.element;
      if (algorithm.has_radix) row.radix = choice->parameters.radix;
      answer.rows.push_back(std::move(row));
    }
  }
  if (answer.rows.empty()) {
    const Problem problem = problem_of(question, ranks, question.sizes[0]);
    return no_algorithm(question, problem, names_that_serve(problem));
  }
  return answer;
}

}  // namespace paceline
