#include "tuning/prediction.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "algorithms/chunks.h"
#include "algorithms/packed_trees.h"
#include "base/index.h"
#include "base/wrong.h"
#include "topology/arborescences.h"
#include "topology/chain_order.h"
#include "topology/rings.h"
#include "tuning/closed_forms.h"
#include "tuning/sources.h"
#include "tuning/symmetry.h"
#include "tuning/topology_costs.h"
#include "tuning/tree_predictions.h"

namespace paceline {
namespace {

// A simulation of more steps takes longer than a person waits; longer chunks make fewer. Who asks for one algorithm by
// name and cannot have fewer steps may wait two minutes, with 8 GiB.
constexpr double most_steps = 2.5e6;
constexpr double most_steps_by_name = 5e7;
constexpr double most_steps_counted = 1e9;
constexpr int most_chunks = 1024;
constexpr int most_ranks = 1 << 16;  // by a model alone, as nodes of a topology
constexpr double most_steps_of_sources = 1e5;
// Searches of orders and trees on more GPUs take too long.
constexpr std::size_t most_for_orders = 256;
constexpr std::size_t most_for_trees = 32;

bool parts_count(Collective which) {
  using enum Collective;
  return which == all_gather || which == reduce_scatter || which == all_to_all || which == gather || which == scatter;
}

double bus_factor(Collective which, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  return which == Collective::all_reduce ? 2 * others : parts_count(which) ? others : 1;
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

// All ranks' steps, by the algorithm's cost formula.
double steps_of(const Algorithm& algorithm, const Problem& problem, const Parameters& parameters, CostModel model) {
  model.call = model.start = model.node_start = 0;
  model.partner = model.board = model.receiver = model.switching = 0;
  model.step = 1;
  model.bandwidth = model.reduce_bandwidth = model.copy_bandwidth = 1e300;
  return problem.ranks * algorithm.cost(problem, parameters, model);
}

class Predictor {
 public:
  // Of NVSwitches that are alike the topology has one.
  Predictor(Topology topology, const Question& question)
      : topology_(std::move(topology)), question_(question), finder_(topology_), folded_(topology_) {
    const bool all =
        question.gpus.size() == topology_.gpus().size() && std::is_sorted(question.gpus.begin(), question.gpus.end());
    // Of one node's ranks there are neither all links nor all timelines.
    if (all && !question.in_detail && question.machine.slow_gpus.empty() && question.machine.slow_links.empty())
      period_ = folded_.fold_nodes();
    model_ = cost_model_of(finder_, question_.gpus, question.machine, question.element_bytes);
  }

  Result<Answer> answer();

 private:
  [[nodiscard]] int ranks() const { return static_cast<int>(question_.gpus.size()); }
  [[nodiscard]] bool asked(std::string_view name) const {
    return question_.algorithm == name || (question_.algorithm == "all" && !question_.in_detail);
  }
  [[nodiscard]] bool by_name(std::string_view name) const { return question_.algorithm == name; }

  Status add_size(const Problem& problem);
  Status add_table(const Problem& problem);
  Status add_row(const Algorithm& algorithm, std::string_view name, const Problem& problem, Parameters parameters);
  Status add_chain(const Problem& problem);
  Status add_trees(const Problem& problem);
  Status add_rings(const Problem& problem);
  void add_formulas(const Problem& problem);
  Status add_sources(const Problem& problem);
  [[nodiscard]] double counted_steps(const Algorithm& algorithm, const Problem& problem,
                                     const Parameters& parameters) const;
  void leave_out(std::string_view name, std::string_view reason);
  Status unless_unsupported(std::string_view name, const Status& status);
  bool are_too_many(double steps, std::string_view name, double most);
  bool is_too_large(const Topology& part, std::string_view name);
  [[nodiscard]] WayFinder in_whole(WayFinder& of_part) const;
  Status run(WayFinder& finder, std::vector<Traffic> traffic, const Problem& problem, std::string_view name,
             std::size_t chunk);
  void note(const Topology& topology, Simulation result, std::vector<Traffic> traffic, const Problem& problem,
            std::string_view name, std::size_t chunk);

  Topology topology_;
  const Question& question_;
  WayFinder finder_;
  WayFinder folded_;
  int period_ = 0;
  CostModel model_;
  Answer answer_;
};

// Simulates, and notes the row.
Status Predictor::run(WayFinder& finder, std::vector<Traffic> traffic, const Problem& problem, std::string_view name,
                      std::size_t chunk) {
  auto result = simulate(finder, traffic, question_.machine, question_.in_detail);
  if (!result.ok()) return unless_unsupported(name, result.status());
  note(finder.topology(), std::move(*result), std::move(traffic), problem, name, chunk);
  return {};
}

void Predictor::note(const Topology& topology, Simulation result, std::vector<Traffic> traffic, const Problem& problem,
                     std::string_view name, std::size_t chunk) {
  Prediction row = row_of(question_, problem, name, result.time);
  row.method = "simulated";
  row.chunk_bytes = std::min(chunk, std::max<std::size_t>(problem.count, 1)) * question_.element_bytes;
  for (std::size_t l = 0; l < result.link_bytes.size() && result.time > 0; ++l) {
    const Link& link = topology.links()[l];
    const auto slow = question_.machine.slow_links.find(static_cast<int>(l));
    const double bandwidth =
        slow == question_.machine.slow_links.end() ? link.bandwidth : link.bandwidth / slow->second;
    const double share = result.link_bytes[l] / (bandwidth * 1000) / result.time;
    if (share <= row.busiest_share * (1 + 1e-9)) continue;
    row.busiest_share = share;
    row.busiest_link = fmt::format("{} -> {}", topology.vertex(link.from).name, topology.vertex(link.to).name);
  }
  answer_.rows.push_back(std::move(row));
  if (question_.in_detail) {
    answer_.topology = topology;
    answer_.simulation = std::move(result);
    answer_.traffic = std::move(traffic);
    answer_.slow_links = question_.machine.slow_links;
  }
}

// What formulas say of rounds in which messages have many parts is too much: they count parts. Rank 0 and one half way
// round stand for all.
double Predictor::counted_steps(const Algorithm& algorithm, const Problem& problem,
                                const Parameters& parameters) const {
  const double formula = steps_of(algorithm, problem, parameters, model_);
  // One rank's steps alone may be too many to write down.
  if (formula <= most_steps || formula > most_steps_counted || formula / problem.ranks > most_steps) return formula;
  std::size_t most = 0;
  for (const int rank : {0, problem.ranks / 2}) {
    Schedule schedule(problem, parameters, rank);
    algorithm.write(schedule);
    most = std::max(most, Program(schedule, rank, question_.element_bytes).acts.size());
  }
  return std::min(formula, static_cast<double>(most) * problem.ranks);
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

// And says that there is no row for them.
bool Predictor::are_too_many(double steps, std::string_view name, double most) {
  if (steps <= most) return false;
  leave_out(name, fmt::format("{:.0f} steps are too many to simulate", steps));
  return true;
}

bool Predictor::is_too_large(const Topology& part, std::string_view name) {
  const std::size_t vertices = part.vertices().size();
  if (vertices <= most_vertices_for_trees) return false;
  leave_out(name, fmt::format("none are searched in a graph of {} GPUs, CPUs, switches and NICs", vertices));
  return true;
}

Status Predictor::add_row(const Algorithm& algorithm, std::string_view name, const Problem& problem,
                          Parameters parameters) {
  if (question_.chunk_bytes > 0) {
    parameters.chunk = std::max<std::size_t>(1, question_.chunk_bytes / question_.element_bytes);
  } else {
    parameters.chunk = std::max(parameters.chunk, (problem.count + most_chunks - 1) / most_chunks);
  }
  double steps = steps_of(algorithm, problem, parameters, model_);
  if (period_ > 0 && steps > most_steps / 100) {
    Problem even = problem;
    if (!parts_count(problem.collective)) even.count = even_count(problem);
    if (steps * period_ / problem.ranks <= most_steps) {
      if (auto traffic = symmetric_traffic(algorithm, even, parameters, question_.element_bytes, period_)) {
        std::vector<Traffic> one;
        one.push_back(std::move(*traffic));
        return run(folded_, std::move(one), even, name, parameters.chunk);
      }
    }
  }
  steps = counted_steps(algorithm, problem, parameters);
  for (int times = 0; steps > most_steps && question_.chunk_bytes == 0 && times < 24; ++times) {
    parameters.chunk += parameters.chunk / 4 + 1;
    steps = steps_of(algorithm, problem, parameters, model_);
  }
  if (are_too_many(steps, name, by_name(name) ? most_steps_by_name : most_steps)) return {};
  Schedule schedule(problem, parameters);
  algorithm.write(schedule);
  std::vector<Traffic> traffic;
  traffic.push_back(traffic_of(schedule, question_.element_bytes, question_.gpus));
  return run(finder_, std::move(traffic), problem, name, parameters.chunk);
}

Status Predictor::add_table(const Problem& problem) {
  for (const Algorithm& algorithm : algorithms())
    if (asked(algorithm.name) && serves(algorithm, problem))
      PACE_TRY(add_row(algorithm, algorithm.name, problem, algorithm.parameters(problem, model_)));
  return {};
}

Status Predictor::add_chain(const Problem& problem) {
  const Algorithm& algorithm = *algorithm_named("pipelined_chain");
  if (!asked("topology_chain") || !serves(algorithm, problem)) return {};
  if (question_.gpus.size() > most_for_orders) {
    leave_out("topology_chain", fmt::format("no order is searched for {} ranks", ranks()));
    return {};
  }
  const auto chain = least_loaded_chain(topology_, question_.gpus, question_.gpus[at(problem.root)]);
  if (!chain.ok()) return unless_unsupported("topology_chain", chain.status());
  std::vector<int> order;
  std::vector<int> gpus;
  for (const int gpu : chain->order) {
    const auto rank = std::find(question_.gpus.begin(), question_.gpus.end(), gpu) - question_.gpus.begin();
    order.push_back(static_cast<int>(rank));
    gpus.push_back(gpu);
  }
  const CostModel model = cost_model_of(finder_, gpus, question_.machine, question_.element_bytes);
  Parameters parameters = algorithm.parameters(problem, model);
  parameters.order = std::move(order);
  return add_row(algorithm, "topology_chain", problem, std::move(parameters));
}

// The same ways in the whole topology: what is simulated there has GPUs and links by the numbers that stragglers have.
WayFinder Predictor::in_whole(WayFinder& of_part) const {
  const std::vector<int> numbers = links_in_whole(of_part.topology(), topology_);
  WayFinder finder(topology_);
  for (int from = 0; from < ranks(); ++from) {
    for (int to = 0; to < ranks(); ++to) {
      std::vector<WayPart> ways = of_part.between(from, to);
      for (WayPart& way : ways)
        for (int& link : way.links) link = numbers[at(link)];
      finder.set(question_.gpus[at(from)], question_.gpus[at(to)], std::move(ways));
    }
  }
  return finder;
}

Status Predictor::add_trees(const Problem& problem) {
  if (!asked("packed_trees") || !has_trees(problem.collective)) return {};
  if (question_.gpus.size() > most_for_trees) {
    leave_out("packed_trees", fmt::format("no trees are packed for {} ranks", ranks()));
    return {};
  }
  const auto part = select(topology_, question_.gpus);
  PACE_TRY(part.status());
  if (is_too_large(*part, "packed_trees")) return {};
  const auto packings = trees_of(problem, *part);
  if (!packings.ok()) {
    leave_out("packed_trees", packings.status().message());
    return {};
  }
  WayFinder of_part(*part);
  give_ways(*packings, *part, of_part);
  WayFinder finder = in_whole(of_part);
  // Of 1 GB in 2048 chunks, filling the trees takes 1%.
  const std::size_t all = problem.count * (parts_count(problem.collective) ? at(ranks()) : 1);
  const std::size_t trees = packings->front().trees.size();
  const std::size_t longest = pipeline_chunk(all / std::max<std::size_t>(1, trees), ranks(), model_);
  Parameters parameters{.chunk = std::max(all / 2048, longest)};
  if (question_.chunk_bytes > 0)
    parameters.chunk = std::max<std::size_t>(1, question_.chunk_bytes / question_.element_bytes);
  // Each chunk is sent and received on each edge of its tree, once in each pass.
  const double chunks = std::ceil(static_cast<double>(all) / static_cast<double>(parameters.chunk));
  if (are_too_many(2.0 * (ranks() - 1) * chunks * static_cast<double>(packings->size()), "packed_trees", most_steps))
    return {};
  // Which timing suits the packings best is seen by trying, until one is as good as at the bound or it takes too long.
  const double roots = problem.collective == Collective::broadcast ? 1 : ranks();
  const double bound = bound_of(*packings, static_cast<double>(all * question_.element_bytes) / roots);
  std::vector<Traffic> best;
  double messages = 0;
  Simulation fastest;
  fastest.time = std::numeric_limits<double>::infinity();
  for (const TreeTiming& timing : tree_timings(problem.collective)) {
    Schedule schedule(problem, parameters);
    PACE_TRY(write_packed_trees(schedule, *packings, timing));
    std::vector<Traffic> traffic;
    traffic.push_back(traffic_of(schedule, question_.element_bytes, question_.gpus));
    auto tried = simulate(finder, traffic, question_.machine, question_.in_detail);
    PACE_TRY(tried.status());
    messages += static_cast<double>(tried->messages);
    if (tried->time < fastest.time) {
      best = std::move(traffic);
      fastest = std::move(*tried);
    }
    if (fastest.time <= 1.015 * bound || messages > most_steps) break;
  }
  note(topology_, std::move(fastest), std::move(best), problem, "packed_trees", parameters.chunk);
  return {};
}

Status Predictor::add_rings(const Problem& problem) {
  const Algorithm& algorithm = *algorithm_named("ring");
  if (!asked("rings") || !serves(algorithm, problem) || ranks() == 1) return {};
  if (question_.gpus.size() > most_for_trees) {
    leave_out("rings", fmt::format("no rings are packed for {} ranks", ranks()));
    return {};
  }
  const auto part = select(topology_, question_.gpus);
  PACE_TRY(part.status());
  if (is_too_large(*part, "rings")) return {};
  const RingPacking packing = pack_rings(*part);
  if (packing.rings.empty()) {
    leave_out("rings",
              packing.exact ? "no ring passes all of these GPUs" : "no ring was found before the search was given up");
    return {};
  }
  WayFinder of_part(*part);
  WayFinder finder = in_whole(of_part);
  std::vector<Traffic> traffic;
  Flow before = 0;
  std::size_t begun = 0;
  Parameters parameters = algorithm.parameters(problem, model_);
  if (question_.chunk_bytes > 0)
    parameters.chunk = std::max<std::size_t>(1, question_.chunk_bytes / question_.element_bytes);
  if (are_too_many(steps_of(algorithm, problem, parameters, model_), "rings", most_steps)) return {};
  for (const Ring& ring : packing.rings) {
    before += ring.rate;
    const auto end = static_cast<std::size_t>(static_cast<double>(problem.count) * static_cast<double>(before) /
                                              static_cast<double>(packing.rate));
    Problem share = problem;
    share.count = std::min(end, problem.count) - begun;
    begun += share.count;
    parameters.order = ring.order;
    Schedule schedule(share, parameters);
    algorithm.write(schedule);
    traffic.push_back(traffic_of(schedule, question_.element_bytes, question_.gpus));
  }
  return run(finder, std::move(traffic), problem, "rings", parameters.chunk);
}

void Predictor::add_formulas(const Problem& problem) {
  const closed_forms::Rates rates{.start = model_.start + question_.machine.delay, .bandwidth = model_.bandwidth};
  const auto bytes = static_cast<double>(problem.count * question_.element_bytes);
  const auto add = [&](std::string_view name, double time) {
    Prediction row = row_of(question_, problem, name, bytes > 0 && ranks() > 1 ? time : 0);
    row.method = "formula";
    answer_.rows.push_back(std::move(row));
  };
  if (by_name("reduction_server") && problem.collective == Collective::all_reduce) {
    const int servers = question_.servers > 0 ? question_.servers : ranks();
    add("reduction_server", closed_forms::reduction_server(bytes, ranks(), servers, rates.bandwidth, rates));
  }
  if (by_name("multicast") && problem.collective == Collective::broadcast)
    add("multicast", closed_forms::multicast_streamed(bytes, ranks(), {.host = rates.bandwidth}));
}

Status Predictor::add_sources(const Problem& problem) {
  // Each message waits for the one before it to arrive.
  const closed_forms::Rates rates{.start = model_.start + question_.machine.delay, .bandwidth = model_.bandwidth};
  const Sources sources{question_.sources, problem.count, question_.element_bytes, question_.gpus};
  const auto bytes = static_cast<double>(problem.count * question_.element_bytes);
  const int m = question_.sources;
  constexpr std::size_t longest = 512 << 10;
  const double chunk = std::min(bytes, static_cast<double>(longest));
  const auto add = [&](std::string_view name, double time, const char* method) {
    Prediction row = row_of(question_, problem, name, bytes > 0 && ranks() > 1 ? time : 0);
    row.method = method;
    row.algbw_gbs *= m;
    row.busbw_gbs *= m;
    answer_.rows.push_back(std::move(row));
  };
  const double messages = 2.0 * m * (ranks() - 1);
  if (asked("knomial")) {
    if (messages * std::ceil(bytes / std::max(chunk, 1.0)) <= most_steps_of_sources) {
      const auto time = knomial_sources_time(finder_, question_.machine, sources,
                                             std::max<std::size_t>(1, longest / question_.element_bytes));
      PACE_TRY(unless_unsupported("knomial", time.status()));
      if (time.ok()) add("knomial", *time, "simulated");
    } else {
      add("knomial", m * closed_forms::knomial_in_chunks(bytes, chunk, ranks(), 2, rates), "formula");
    }
  }
  if (asked("ring")) {
    if (messages <= most_steps_of_sources) {
      const auto time = ring_sources_time(finder_, question_.machine, sources);
      PACE_TRY(unless_unsupported("ring", time.status()));
      if (time.ok()) add("ring", *time, "simulated");
    } else {
      add("ring", closed_forms::ring_sources(bytes, ranks(), rates), "formula");
    }
  }
  if (asked("multicast"))
    add("multicast", closed_forms::multicast_sources(bytes, m, ranks(), {.host = rates.bandwidth}), "formula");
  return {};
}

Status Predictor::add_size(const Problem& problem) {
  if (question_.sources > 0) return add_sources(problem);
  PACE_TRY(add_table(problem));
  PACE_TRY(add_chain(problem));
  PACE_TRY(add_trees(problem));
  PACE_TRY(add_rings(problem));
  add_formulas(problem);
  return {};
}

Result<Answer> Predictor::answer() {
  for (const std::size_t bytes : question_.sizes) {
    const std::size_t before = answer_.rows.size();
    PACE_TRY(add_size(problem_of(question_, ranks(), bytes)));
    for (std::size_t row = before; row < answer_.rows.size(); ++row) answer_.rows[row].asked_bytes = bytes;
  }
  if (answer_.rows.empty()) {
    if (!answer_.left_out.empty()) return wrong(answer_.left_out[0]);
    return wrong(fmt::format("there is no algorithm '{}' for {} on {} ranks", question_.algorithm,
                             title(question_.collective), ranks()));
  }
  return std::move(answer_);
}

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
  if (question.servers < 0) return wrong(fmt::format("{} servers", question.servers));
  if (question.in_detail && (question.sizes.size() != 1 || question.algorithm == "all"))
    return wrong("links and timelines are of one algorithm at one size");
  return {};
}

}  // namespace

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
  if (ranks < 1) return wrong(fmt::format("{} ranks", ranks));
  if (ranks > most_ranks) return wrong(fmt::format("{} ranks: at most {}", ranks, most_ranks));
  PACE_TRY(check(question, ranks));
  if (question.in_detail) return wrong("links and timelines need a topology");
  Answer answer;
  CostModel of_type = model;
  of_type.element = question.element_bytes;
  for (const std::size_t bytes : question.sizes) {
    Problem problem = problem_of(question, ranks, bytes);
    if (tuned != nullptr) problem.in_place = false;  // as it was measured
    for (const Algorithm& algorithm : algorithms()) {
      if (!serves(algorithm, problem) || (question.algorithm != "all" && question.algorithm != algorithm.name))
        continue;
      const auto choice = choose(problem, of_type, algorithm.name, question.chunk_bytes, tuned);
      PACE_TRY(choice.status());
      Prediction row = row_of(question, problem, algorithm.name, choice->predicted_us);
      row.method = tuned != nullptr && tuned->measured(algorithm, problem.collective) ? "measured" : "model";
      row.asked_bytes = bytes;
      row.chunk_bytes = std::min(choice->parameters.chunk, std::max<std::size_t>(problem.count, 1)) * of_type.element;
      answer.rows.push_back(std::move(row));
    }
  }
  if (answer.rows.empty())
    return wrong(fmt::format("there is no algorithm '{}' for {} on {} ranks", question.algorithm,
                             title(question.collective), ranks));
  return answer;
}

}  // namespace paceline
