#include "schedule/request.h"

#include "schedule/problem.h"

namespace paceline {

bool is_in_place(const Request& request, int rank) {
  if (request.send == nullptr || request.recv == nullptr) return false;
  Problem problem;
  problem.collective = request.which;
  problem.count = request.count;
  problem.root = request.root;
  const std::ptrdiff_t offset = input_in_output(problem, rank) * static_cast<std::ptrdiff_t>(size_of(request.type));
  return request.send == request.recv + offset;
}

}  // namespace paceline
