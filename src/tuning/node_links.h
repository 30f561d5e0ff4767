// What is fastest between nodes whose links were measured when the communicator was made, and nothing else was.
//
// The cost formulas have one bandwidth. Where nodes' links differ, what counts is how much of a collective passes the
// slowest of them, and when: so every algorithm is simulated on a star of the links as they are, at a few sizes, and
// the times are used as if they had been measured (tuned.h). The ranks share this work: each simulates some of the
// calls, and all get all times. So it is done on a topology that the user knows (PACELINE_TOPOLOGY), instead of a star.
#pragma once

#include <cstddef>
#include <vector>

#include "topology/graph.h"
#include "tuning/profile.h"

namespace paceline {

// Bytes per us that one rank's CPU sends over TCP.
inline constexpr double fastest_stream = 2000;

struct NodeLinks {
  std::vector<double> rates;  // bytes per us of each rank's node, each way: at most fastest_stream
  double start = 0;           // us that a short message takes
};

// Whom a node meets in this round (from 0) of a tournament in which, within one round less than there are nodes (as
// many, if they are odd), each meets each other one once; -1: nobody.
int opponent(int node, int nodes, int round);

// Whom each node meets once more, or -1: those that seem slow, one each of those that do not. A node may seem slow
// because its opponents were, or were disturbed.
std::vector<int> second_looks(const std::vector<double>& rates);

// A call that is simulated: an algorithm at a size of the call's count, float32.
struct SimulatedCall {
  Collective collective = Collective::all_reduce;
  const Algorithm* algorithm = nullptr;
  std::size_t bytes = 0;
};
// For so many ranks the same on each of them. paths: of the ranks' topology; nullptr: none is known.
std::vector<SimulatedCall> simulated_calls(int ranks, Paths* paths = nullptr);

// The links as a topology, of which rank r is GPU r.
Topology star(const NodeLinks& links);

// What a call takes (us) on such a topology; 0: it cannot be said. start: us that a short message takes. The model says
// how algorithms choose chunks.
double simulated_us(const Topology& topology, double start, const CostModel& model, const SimulatedCall& call);

// The times of all of simulated_calls() as a setting, whose model is the one given.
Setting simulated_setting(int ranks, const CostModel& model, const std::vector<double>& times);

}  // namespace paceline
