// Rings: the ring algorithm on all edge-disjoint rings of the topology at once.
//
// Each ring carries its share of the data, by its rate, and all of them pass their chunks in the same rounds. On links
// that no two rings share the rates add up: a DGX-1V has eight rings, together 150 GB/s, where a single one has 25.
//
// Each rank sends M (n-1)/n bytes for each of reduce-scatter and all-gather, as by one ring (ring.cc), to as many ranks
// as there are rings.
// Time of all-reduce around r rings: 2(n-1)(ts + M/(nrB)) + (n-1) M/(nR), B that of one of them.
// Source: NCCL's channels; the rings are found by topology/rings.h.
#include <vector>

#include "algorithms/ring.h"
#include "algorithms/table.h"
#include "schedule/cables.h"
#include "topology/paths.h"

namespace paceline {
namespace {

bool finds(const Problem&, Paths& paths) { return paths.rings().ok(); }

double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) {
  const RingPacking& packing = *parameters.paths->rings();
  std::vector<double> shares;
  Cables cables(model, problem.ranks);
  for (const Ring& ring : packing.rings) {
    shares.push_back(static_cast<double>(ring.rate) / static_cast<double>(packing.rate));
    for (std::size_t i = 0; i < ring.order.size(); ++i)
      cables.move(ring.order[i], ring.order[(i + 1) % ring.order.size()], shares.back());
  }
  return cost_of_rings(problem, parameters, model, shares, cables.busiest());
}

void write(Schedule& schedule) { write_rings(schedule, schedule.parameters().paths->rings()->rings); }

}  // namespace

Algorithm rings_row() {
  using enum Collective;
  return {
      .name = "rings",
      .sentence = "Blocks go round all edge-disjoint rings of the topology at once, each with its share.",
      .collectives = these<all_reduce, all_gather, reduce_scatter>,
      .finds = finds,
      .cost_of_several = cost,
      .write_for_several = write,
  };
}

}  // namespace paceline
