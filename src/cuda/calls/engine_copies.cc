#include "cuda/calls/engine_copies.h"

#include "base/types.h"

namespace paceline::cuda {

EngineCopies plan_engine_copies(const Request& request, int rank, int ranks) {
  EngineCopies plan;
  const std::uint64_t bytes = request.count * size_of(request.type);
  // One engine after the other would send a root's message to all: with more than two ranks it is better relayed.
  const bool relayed = request.which == Collective::broadcast && ranks > 2;
  plan.possible = ranks > 1 && bytes > 0 && !relayed && !reduces(request.which) && !is_message(request.which) &&
                  request.which != Collective::barrier;
  if (!plan.possible) return plan;
  const auto at = [&](int part) { return bytes * static_cast<unsigned>(part); };
  const auto add = [&](int from, std::uint64_t input, std::uint64_t output) {
    if (from == rank && is_in_place(request, rank)) return;
    plan.copies[plan.count++] = {from, input, output, bytes};
  };
  if (request.which == Collective::broadcast || request.which == Collective::scatter) {
    add(request.root, request.which == Collective::scatter ? at(rank) : 0, 0);
    return plan;
  }
  if (request.which == Collective::gather && rank != request.root) return plan;
  // Beginning behind this rank, so that not all load from one.
  for (int i = 1; i <= ranks; ++i) {
    const int from = (rank + i) % ranks;
    add(from, request.which == Collective::all_to_all ? at(rank) : 0, at(from));
  }
  return plan;
}

}  // namespace paceline::cuda
