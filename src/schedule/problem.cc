#include "schedule/problem.h"

namespace paceline {

std::size_t input_elements(const Problem& problem, int rank) {
  switch (problem.collective) {
    case Collective::broadcast: return rank == problem.root ? problem.count : 0;
    case Collective::scatter: return rank == problem.root ? problem.count * static_cast<std::size_t>(problem.ranks) : 0;
    case Collective::reduce_scatter:
    case Collective::all_to_all: return problem.count * static_cast<std::size_t>(problem.ranks);
    case Collective::barrier: return 0;
    default: return problem.count;
  }
}

std::size_t output_elements(const Problem& problem, int rank) {
  switch (problem.collective) {
    case Collective::reduce: return rank == problem.root ? problem.count : 0;
    case Collective::gather: return rank == problem.root ? problem.count * static_cast<std::size_t>(problem.ranks) : 0;
    case Collective::all_gather:
    case Collective::all_to_all: return problem.count * static_cast<std::size_t>(problem.ranks);
    case Collective::barrier: return 0;
    default: return problem.count;
  }
}

std::ptrdiff_t input_in_output(const Problem& problem, int rank) {
  const auto block = static_cast<std::ptrdiff_t>(problem.count) * rank;
  switch (problem.collective) {
    case Collective::all_gather: return block;
    case Collective::gather: return rank == problem.root ? block : 0;
    case Collective::reduce_scatter: return -block;
    case Collective::scatter: return rank == problem.root ? -block : 0;
    default: return 0;
  }
}

}  // namespace paceline
