// Topology-aware pipelined chain: the pipelined chain in the order that suits the topology.
//
// On a tree of switches, or where some links are slow, a chain in the ranks' order may send its stream over one link
// several times; it then goes at that link's rate, divided by so many. The order here is the one from the root whose
// most loaded directed link is least loaded: 1 on every full-duplex tree.
//
// Bytes and time are those of the pipelined chain (pipelined_chain.cc), B being the rate of the narrowest link, divided
// by its load.
// Source: Awan et al., Parallel Computing 85 (2019): TA-PC. The order is found by topology/chain_order.h.
#include "algorithms/pipelined_chain.h"
#include "algorithms/table.h"
#include "topology/paths.h"

namespace paceline {
namespace {

const Result<std::vector<int>>& order_of(const Problem& problem, Paths& paths) {
  return paths.chain(problem.root, problem.collective == Collective::reduce);
}

bool finds(const Problem& problem, Paths& paths) { return order_of(problem, paths).ok(); }

void write(Schedule& schedule) {
  write_pipelined_chain(schedule, *order_of(schedule.problem(), *schedule.parameters().paths));
}

}  // namespace

Algorithm topology_chain_row() {
  using enum Collective;
  return {
      .name = "topology_chain",
      .sentence = "A pipelined chain in the order whose most loaded link is least loaded.",
      .collectives = these<broadcast, reduce>,
      .finds = finds,
      .parameters = pipelined_chain_parameters,
      .cost_of_several = pipelined_chain_cost,
      .write_for_several = write,
  };
}

}  // namespace paceline
