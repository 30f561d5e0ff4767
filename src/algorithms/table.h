// The table of algorithms: the one place that lists them. The choice, `paceline explain`, `paceline bench
// --algorithm all`, the docs and the proof all read it. Each row is defined at the end of the algorithm's file;
// table.cc lists them (docs/algorithms.md, Adding one).
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "algorithms/chunks.h"
#include "base/status.h"
#include "schedule/cost.h"
#include "schedule/schedule.h"
#include "topology/paths.h"

namespace paceline {

template <Collective... which>
inline constexpr std::array these{which...};

inline bool always(const Problem&) { return true; }

struct Algorithm {
  std::string_view name = {};
  std::string_view sentence = {};                    // what it does, for people
  std::span<const Collective> collectives = {};      // which it serves
  bool (*applies)(const Problem& problem) = always;  // beyond the collective, for two ranks or more
  // Of one that goes by a topology: whether that has the ways that it takes. nullptr: it needs no topology.
  bool (*finds)(const Problem& problem, Paths& paths) = nullptr;
  // The best for the problem.
  Parameters (*parameters)(const Problem& problem, const CostModel& model) = largest_chunks;
  // us, and the schedule: for two ranks or more.
  double (*cost_of_several)(const Problem& problem, const Parameters& parameters, const CostModel& model) = nullptr;
  void (*write_for_several)(Schedule& schedule) = nullptr;
  bool has_radix = false;  // that can be asked for (Parameters::radix)
  // Whether somebody has compared its formula with measured times. Until then it runs only where it is forced, or where
  // a profile that measured it says so.
  bool measured = false;
  // Times measured on other numbers of ranks correct its cost by how many ranks act (surplus.h), not by how many there
  // are. So it is of all-reduces; recursive_halving comes nearer to measured times without (docs/notes/predictions.md).
  bool by_actors = false;
  // Whether all that is sent are inputs, which nothing writes to meanwhile: where ranks read each other's memory, no
  // slot limits how long a message is. nullptr: no, or nobody has measured what comes of it.
  bool (*gives_only_inputs)(const Problem& problem) = nullptr;

  // The same for any number of ranks: one alone copies, whatever the algorithm.
  [[nodiscard]] double cost(const Problem& problem, const Parameters& parameters, const CostModel& model) const;
  void write(Schedule& schedule) const;
};

std::span<const Algorithm> algorithms();
const Algorithm* algorithm_named(std::string_view name);
// Error (invalid_argument): it has no radix; it says which have one.
Status check_has_radix(const Algorithm& algorithm);
// Whether the algorithm serves the problem: one rank alone always, of its collectives. paths: of the ranks' topology;
// nullptr: none is known.
bool serves(const Algorithm& algorithm, const Problem& problem, Paths* paths = nullptr);
// Of the schedule that the algorithm writes, channels. It is written for a few chunks of a long message, which have as
// many.
int channels_of(const Algorithm& algorithm, Problem problem, const Parameters& parameters);

}  // namespace paceline
