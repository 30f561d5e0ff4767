// How much a simulation has to do, known before its schedule is written, and how much is too much.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/table.h"
#include "schedule/traffic.h"

namespace paceline {

// A simulation of more steps takes longer than a person waits; longer chunks make fewer.
inline constexpr double most_steps = 2.5e6;
// Who asks for one algorithm by name waits longer: chunks are as they are up to so many steps (a minute and a half on
// 16,384 ranks, 2 GB), and what cannot have fewer is simulated up to so many (6 GB).
inline constexpr double enough_steps_by_name = 1e7;
inline constexpr double most_steps_by_name = 5e7;
// Likewise simulations in which so many ranks exchange with all others at once, which only who asks by name waits for.
inline constexpr double most_connections = 1.5e6;

// Of all ranks. A connection counts as one of either rank.
struct Effort {
  double steps = 0;
  double connections = 0;
};

// All ranks' steps, by the algorithm's cost formula.
double steps_of(const Algorithm& algorithm, const Problem& problem, const Parameters& parameters,
                const CostModel& model);

// By the formula, without connections, where that says few steps or hopelessly many; in between, where formulas may say
// too many, as some ranks' schedules have it.
Effort effort_of(const Algorithm& algorithm, const Problem& problem, const Parameters& parameters,
                 const CostModel& model, std::size_t element_bytes);
Effort effort_of(const std::vector<Traffic>& traffic);

// The efforts of a question's problems by an algorithm's name. What is at least as much as one that was too much is not
// counted again: schedules that are too long are long to write, too.
class Efforts {
 public:
  // The known effort of a problem with no more elements, and no more chunks of them; else effort_of().
  Effort of(const Algorithm& algorithm, std::string_view name, const Problem& problem, const Parameters& parameters,
            const CostModel& model, std::size_t element_bytes) const;
  // Of the first problem of a name.
  void was_too_much(std::string_view name, const Problem& problem, std::size_t chunk, const Effort& effort);

 private:
  struct Counted {
    std::size_t count = 0;  // the problem's
    double chunks = 0;
    Effort effort;
  };
  std::map<std::string, Counted, std::less<>> too_much_;
};

std::string too_many(double steps);  // in words
// Why a simulation is left out; empty if it is not for this. `by_name`: it was asked for so.
std::string too_many_steps(const Effort& effort, bool by_name);
std::string too_many_connections(const Effort& effort, bool by_name);

}  // namespace paceline
