#include "tuning/symmetry.h"

#include "base/rounding.h"

namespace paceline {

std::optional<Traffic> symmetric_traffic(const Algorithm& algorithm, const Problem& problem,
                                         const Parameters& parameters, std::size_t element_bytes, int period) {
  if (period < 1 || problem.ranks % period != 0 || problem.ranks < 2 * period || is_rooted(problem.collective))
    return {};
  const auto programs_from = [&](int first, int end) {
    std::vector<Program> programs;
    for (int rank = first; rank < end; ++rank) {
      Schedule schedule(problem, parameters, rank);
      algorithm.write(schedule);
      programs.emplace_back(schedule, rank, element_bytes);
    }
    return programs;
  };
  const auto same = [&](int ranks, const std::vector<Program>& programs, int first) {
    const auto others = programs_from(first, first + ranks);
    return same_shifted(std::span(programs).first(static_cast<std::size_t>(ranks)), others, first, problem.ranks);
  };
  Traffic traffic;
  traffic.programs = programs_from(0, 1);
  if (!same(1, traffic.programs, period)) return {};  // mostly this tells
  traffic.programs = programs_from(0, period);
  if (!same(period, traffic.programs, period) || !same(period, traffic.programs, problem.ranks - period)) return {};
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
