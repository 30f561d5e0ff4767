// A profile as one communicator uses it: the settings of its transport that are nearest to its number of ranks.
//
// The model's constants are those fitted; between two numbers of ranks that were measured they are interpolated. The
// formulas have one bandwidth where caches have several, so a prediction is the formula's time at the call's size,
// times what measured times were of the formula's around that size. The formula says how a time changes with size and
// ranks, the measurement what it is.
#pragma once

#include <memory>
#include <string_view>

#include "tuning/profile.h"

namespace paceline {

inline constexpr std::size_t measured_element = 4;  // float32

class Tuned {
 public:
  // nullptr: the profile has nothing about the transport with so many ranks on each node (CostModel::node_ranks).
  static std::shared_ptr<const Tuned> of(const Profile& profile, std::string_view transport, int ranks,
                                         int node_ranks = 1);

  // `base` is the communicator's own model, from which it keeps what it knows better: its ranks' share of the CPUs, the
  // longest message, the element.
  [[nodiscard]] CostModel model(CostModel base) const;
  // What was fastest for this number of ranks and size; nullptr: not measured. paths: of the ranks' topology, as
  // serves() has it.
  [[nodiscard]] const TableRow* fastest(const Problem& problem, std::size_t bytes, Paths* paths = nullptr) const;
  // Measured over predicted by the formula, at this size; 1 where nothing was measured. A variant that was not measured
  // is corrected as the algorithm's own choice, and where one number of ranks was not, the other one's counts.
  [[nodiscard]] double correction(const Algorithm& algorithm, const Problem& problem, std::size_t bytes,
                                  const Variant& variant = {}) const;

  // Whether the algorithm was measured, run in this way, with these ranks at this size or at one on either side.
  [[nodiscard]] bool measured(const Algorithm& algorithm, Collective collective, std::size_t bytes,
                              const Variant& variant = {}) const;
  // Whether there are times of the algorithm to correct by.
  [[nodiscard]] bool corrects(const Algorithm& algorithm, Collective collective) const;

 private:
  // Of high_ in what is interpolated for so many ranks.
  [[nodiscard]] double share(int ranks) const;

  Setting low_;   // at most as many ranks, or the fewest measured
  Setting high_;  // at least as many, or the most
  int ranks_ = 0;
};

}  // namespace paceline
