// Predictions: what a collective would take on a topology, by each algorithm.
//
// Algorithms of the table are written for the topology's GPUs and simulated (schedule/simulator.h). Beside them stand
// those that come from the topology:
//
//   topology_chain    the pipelined chain in the order from the root whose busiest link is least loaded
//                     (topology/chain_order.h)
//   packed_trees      broadcast, all-gather, reduce-scatter and all-reduce at the topology's bound
//                     (algorithms/packed_trees.h)
//   rings             the ring algorithm on all edge-disjoint rings at once, each with its share (topology/rings.h)
//
// and, by name only, those that are predicted by a formula (closed_forms.h): reduction_server, and
// `multicast`, the streamed one. Broadcasts of several sources are simulated (sources.h) where that is quick, and
// predicted by a formula where it is not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "schedule/simulator.h"
#include "tuning/choice.h"

namespace paceline {

// What GPUs' messages take where nothing was measured: an estimate.
inline Machine typical_machine() {
  Machine machine;
  machine.start = 0.5;
  machine.delay = 2;
  machine.ports = Ports::connections;
  return machine;
}

struct Question {
  Collective collective = Collective::all_reduce;
  std::vector<std::size_t> sizes;  // bytes, as in the rows of `paceline bench`
  std::size_t element_bytes = 4;
  int root = 0;                   // rank
  std::vector<int> gpus;          // rank r is on GPU gpus[r]
  std::string algorithm = "all";  // or one by name
  std::size_t chunk_bytes = 0;    // the longest chunk; 0: the algorithm's own
  int radix = 0;                  // of algorithms that have one, which one by name must have; 0: their own
  int sources = 0;                // broadcasts from so many ranks at once; 0: an ordinary collective
  int servers = 0;                // of a reduction_server; 0: as many as there are ranks
  Machine machine;                // stragglers by their numbers in the topology
  bool timed = false;             // the machine's start or delay is no estimate, but asked for
  bool with_links = false;        // what goes over each link, in rows of which all ranks are simulated
  bool in_detail = false;         // with links and timeline, for one algorithm and one size
};

// What goes over a link in a simulation.
struct LinkLoad {
  std::string from;
  std::string to;
  double gbs = 0;  // a straggler's are fewer
  double bytes = 0;
  double share = 0;  // what part of the time it works
};

struct Prediction {
  std::string algorithm;
  std::size_t asked_bytes = 0;  // the question's size
  std::size_t bytes = 0;        // of whole elements, as many on every rank
  std::size_t count = 0;        // the call's
  // The longest message that is simulated, or by a model, what longer ones are cut into; 0: none has data, or a formula
  // knows no chunks.
  std::size_t chunk_bytes = 0;
  std::size_t own_chunk_bytes = 0;  // the algorithm's, where it is simulated with longer ones; 0: it is not
  int radix = 0;                    // 0: the algorithm has none
  double time_us = 0;
  double algbw_gbs = 0;
  double busbw_gbs = 0;
  // "simulated"; "formula"; "model"; the model, corrected by measured times: "measured" of these ranks and between
  // sizes that were, "estimated" beyond.
  std::string method;
  std::string busiest_link;  // "gpu0 -> switch0": the one with most bytes for its bandwidth; empty where none is known
  double busiest_share = 0;  // what part of the time it works
  // Of those that carry something, where links are asked for. None: not simulated, or one part's ranks stood for all.
  std::optional<std::vector<LinkLoad>> links;
};

struct Answer {
  std::vector<Prediction> rows;
  std::vector<std::string> left_out;  // "direct: 268435456 steps are too many to simulate"
  // In detail: of the one row.
  Simulation simulation;
  std::vector<Traffic> traffic;
};

// On a valid topology. An algorithm that sends between GPUs without a way, as GPUs do not relay, is left out. Errors
// (invalid_argument): GPUs that the topology does not have, a root that is none of the ranks, an algorithm that does
// not exist or does not serve the collective, what check_stragglers() finds; why algorithms are left out, where all of
// those asked for are.
Result<Answer> predict(const Topology& topology, const Question& question);

// On n ranks whose costs are known as a model, as calibration makes one: by the cost formulas of the table.
// `tuned`: what was measured, or nullptr; its times correct them, as they do for communicators.
Result<Answer> predict(const CostModel& model, int ranks, const Question& question, const Tuned* tuned = nullptr);

// How ranks are placed on all GPUs of a topology: "gpu": in their order; "socket": in turn on each CPU's GPUs, node by
// node; "node": in turn on each node's. As launchers place them.
Result<std::vector<int>> placement(const Topology& topology, std::string_view by);

}  // namespace paceline
