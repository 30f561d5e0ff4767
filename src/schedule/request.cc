#include "schedule/request.h"

namespace paceline {

Problem problem_of(const Request& request, int ranks, bool in_place) {
  return {.collective = request.which,
          .ranks = ranks,
          .root = is_rooted(request.which) ? request.root : 0,
          .count = request.count,
          .in_place = in_place};
}

bool is_in_place(const Request& request, int rank) {
  if (request.send == nullptr || request.recv == nullptr) return false;
  const Problem problem = problem_of(request, 1);  // the number of ranks changes nothing
  const std::ptrdiff_t offset = input_in_output(problem, rank) * static_cast<std::ptrdiff_t>(size_of(request.type));
  return request.send == request.recv + offset;
}

}  // namespace paceline
