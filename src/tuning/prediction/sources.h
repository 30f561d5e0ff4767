// Broadcasts of several sources, simulated: every one of the first ranks has a message for all. What the formulas of
// closed_forms.h say for one port a rank and one bandwidth everywhere, this says for a topology and a machine.
#pragma once

#include "base/status.h"
#include "schedule/simulator.h"

namespace paceline {

struct Sources {
  int count = 1;             // ranks 0, 1, ... of as many as there are GPUs
  std::size_t elements = 0;  // of each message
  std::size_t element_bytes = 4;
  std::vector<int> gpus;  // rank r is on GPU gpus[r]
};

// us: one source after another, each down a binary k-nomial tree in such chunks.
Result<double> knomial_sources_time(WayFinder& finder, const Machine& machine, const Sources& sources,
                                    std::size_t chunk);
// us: all at once round a ring. A rank forwards whole messages, as they come.
Result<double> ring_sources_time(WayFinder& finder, const Machine& machine, const Sources& sources);

}  // namespace paceline
