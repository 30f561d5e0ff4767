#include "tuning/prediction/sources.h"

#include "algorithms/table.h"

namespace paceline {
namespace {

Traffic broadcast_from(int root, std::string_view algorithm, const Sources& sources, std::size_t chunk) {
  Schedule schedule({.collective = Collective::broadcast,
                     .ranks = static_cast<int>(sources.gpus.size()),
                     .root = root,
                     .count = sources.elements,
                     .in_place = true},
                    {.chunk = chunk});
  algorithm_named(algorithm)->write(schedule);
  return traffic_of(schedule, sources.element_bytes, sources.gpus);
}

}  // namespace

Result<double> knomial_sources_time(WayFinder& finder, const Machine& machine, const Sources& sources,
                                    std::size_t chunk) {
  double time = 0;
  for (int source = 0; source < sources.count; ++source) {
    const auto one = simulate(finder, std::vector{broadcast_from(source, "knomial", sources, chunk)}, machine);
    PACE_TRY(one.status());
    time += one->time;
  }
  return time;
}

Result<double> ring_sources_time(WayFinder& finder, const Machine& machine, const Sources& sources) {
  std::vector<Traffic> all;
  all.reserve(static_cast<std::size_t>(sources.count));
  for (int source = 0; source < sources.count; ++source)
    all.push_back(broadcast_from(source, "chain", sources, SIZE_MAX));
  const auto together = simulate(finder, all, machine);
  PACE_TRY(together.status());
  return together->time;
}

}  // namespace paceline
