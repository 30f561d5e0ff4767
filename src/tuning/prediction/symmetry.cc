#include "tuning/prediction/symmetry.h"

#include "base/rounding.h"

namespace paceline {

namespace {

// One problem, of which the ranks' programs are written one by one.
struct Programs {
  const Algorithm& algorithm;
  const Problem& problem;
  const Parameters& parameters;
  std::size_t element_bytes;

  [[nodiscard]] std::vector<Program> of(int first, int end) const {
    std::vector<Program> programs;
    for (int rank = first; rank < end; ++rank) {
      Schedule schedule(problem, parameters, rank);
      algorithm.write(schedule);
      programs.emplace_back(schedule, rank, element_bytes);
    }
    return programs;
  }
  // Whether those from `first` on do what these of the first ranks do.
  [[nodiscard]] bool same(std::span<const Program> programs, int first) const {
    return same_shifted(programs, of(first, first + static_cast<int>(programs.size())), first, problem.ranks);
  }
};

}  // namespace

bool seems_symmetric(const Algorithm& algorithm, const Problem& problem, const Parameters& parameters,
                     std::size_t element_bytes, int period) {
  if (period < 1 || problem.ranks % period != 0 || problem.ranks < 2 * period || is_rooted(problem.collective))
    return false;
  const Programs programs{algorithm, problem, parameters, element_bytes};
  return programs.same(programs.of(0, 1), period);
}

std::optional<Traffic> symmetric_traffic(const Algorithm& algorithm, const Problem& problem,
                                         const Parameters& parameters, std::size_t element_bytes, int period) {
  if (!seems_symmetric(algorithm, problem, parameters, element_bytes, period)) return {};
  const Programs programs{algorithm, problem, parameters, element_bytes};
  Traffic traffic;
  traffic.programs = programs.of(0, period);
  if (!programs.same(traffic.programs, period) || !programs.same(traffic.programs, problem.ranks - period)) return {};
  traffic.name = title(problem.collective);
  traffic.ranks = problem.ranks;
  return traffic;
}

std::size_t even_count(const Problem& problem) {
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  const std::size_t grain = problem.count >= ranks * 1024 ? 64 : 1;
  return rounded_up(problem.count, ranks * grain);
}

}  // namespace paceline
