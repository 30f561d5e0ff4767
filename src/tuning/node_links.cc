#include "tuning/node_links.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedule/simulator.h"

namespace paceline {
namespace {

constexpr std::size_t element = 4;  // float32
// No two neighbours are further apart than a time is believed between them (profile.cc).
constexpr std::size_t smallest = 256;
constexpr std::size_t largest = 1 << 20;
constexpr std::size_t apart = 4;
// What several streams lose on one link: a message to each of several ranks takes as long as side by side, and this
// share of what it would take longer one after the other. Fitted to 4 and 8 nodes, one of them five times as slow.
constexpr double one_by_one = 0.2;

constexpr Collective collectives[] = {Collective::broadcast,      Collective::all_reduce, Collective::all_gather,
                                      Collective::reduce_scatter, Collective::reduce,     Collective::gather,
                                      Collective::scatter,        Collective::all_to_all};

Problem problem_of(const SimulatedCall& call, int ranks) {
  return {call.collective, ranks, 0, call.bytes / element, false};
}

}  // namespace

Topology star(const NodeLinks& links) {
  Topology topology;
  const int middle = topology.add(VertexKind::nvswitch, "network");
  for (std::size_t node = 0; node < links.rates.size(); ++node)
    topology.connect(topology.add(VertexKind::gpu, fmt::format("node{}", node)), middle, LinkKind::nvlink,
                     {links.rates[node] / 1000, 0});
  return topology;
}

int opponent(int node, int nodes, int round) {
  // The last place stays, the others go round; with an odd number of nodes it is nobody's.
  const int places = nodes + nodes % 2;
  const int circle = places - 1;
  if (circle < 1) return -1;
  round %= circle;
  int other = ((2 * round - node) % circle + circle) % circle;
  if (node == circle) other = round;
  if (other == node) other = circle;
  return other < nodes ? other : -1;
}

std::vector<int> second_looks(const std::vector<double>& rates) {
  constexpr double slow = 0.7;  // of the median
  std::vector<double> sorted = rates;
  std::ranges::sort(sorted);
  std::vector<int> others(rates.size(), -1);
  if (rates.empty()) return others;
  const double median = sorted[sorted.size() / 2];
  std::size_t good = 0;
  for (std::size_t node = 0; node < rates.size(); ++node) {
    if (rates[node] >= slow * median) continue;
    while (good < rates.size() && rates[good] < median) ++good;
    if (good == rates.size()) break;
    others[node] = static_cast<int>(good);
    others[good++] = static_cast<int>(node);
  }
  return others;
}

std::vector<SimulatedCall> simulated_calls(int ranks, Paths* paths) {
  std::vector<SimulatedCall> calls;
  for (const Collective collective : collectives)
    for (const Algorithm& algorithm : algorithms())
      for (std::size_t bytes = smallest; bytes <= largest; bytes *= apart) {
        const SimulatedCall call{collective, &algorithm, bytes};
        if ((algorithm.measured || algorithm.finds != nullptr) && serves(algorithm, problem_of(call, ranks), paths))
          calls.push_back(call);
      }
  return calls;
}

double simulated_us(const Topology& topology, double start, const CostModel& model, const SimulatedCall& call) {
  const Problem problem = problem_of(call, static_cast<int>(topology.gpus().size()));
  Parameters parameters = call.algorithm->parameters(problem, model);
  parameters.chunk = std::min(parameters.chunk, std::max<std::size_t>(1, model.largest_chunk / element));
  parameters.paths = model.paths;
  Schedule schedule(problem, parameters);
  call.algorithm->write(schedule);
  WayFinder finder(topology);
  Machine machine{.start = start / 4,
                  .delay = start * 3 / 4,
                  .step = 1,
                  .reduce_bandwidth = model.reduce_bandwidth,
                  .copy_bandwidth = model.copy_bandwidth};
  const std::vector traffic{traffic_of(schedule, element)};
  machine.ports = Ports::connections;
  const auto side_by_side = simulate(finder, traffic, machine);
  machine.ports = Ports::one;
  const auto in_turn = simulate(finder, traffic, machine);
  if (!side_by_side.ok() || !in_turn.ok()) return 0;
  return (1 - one_by_one) * side_by_side->time + one_by_one * in_turn->time;
}

Setting simulated_setting(int ranks, const CostModel& model, const std::vector<double>& times) {
  Setting setting;
  setting.transport = "tcp";
  setting.ranks = ranks;
  setting.model = model;
  const auto calls = simulated_calls(ranks, model.paths.get());
  for (std::size_t i = 0; i < std::min(calls.size(), times.size()); ++i) {
    if (!(times[i] > 0)) continue;
    auto& curves = setting.curves;
    if (curves.empty() || curves.back().collective != calls[i].collective ||
        curves.back().algorithm != calls[i].algorithm)
      curves.push_back({calls[i].collective, calls[i].algorithm, {}});
    curves.back().points.push_back({calls[i].bytes, times[i]});
  }
  setting.table = fastest(setting.curves);
  // With one rank a node the hierarchical ones are these rings on two channels, in shorter chunks. On links they take
  // the same time; but a rank that is late now and then holds up a ring that goes on one channel: 300 KB take 1.2 times
  // as long on 4 nodes and 1.4 times on 8, which share two CPUs.
  for (TableRow& row : setting.table)
    if (row.algorithm->name == "ring" &&
        (row.collective == Collective::all_gather || row.collective == Collective::reduce_scatter))
      row.algorithm = algorithm_named("hierarchical");
  return setting;
}

}  // namespace paceline
