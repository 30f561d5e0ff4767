#include "tuning/choice.h"

#include <fmt/format.h>

namespace paceline {
namespace {

Choice with(const Algorithm& algorithm, const Problem& problem, const CostModel& model, std::size_t chunk_bytes) {
  Choice choice;
  choice.algorithm = &algorithm;
  choice.parameters = algorithm.parameters(problem, model);
  const std::size_t limit = chunk_bytes == 0 ? model.largest_chunk : std::min(chunk_bytes, model.largest_chunk);
  const std::size_t elements = std::max<std::size_t>(1, limit / model.element);
  choice.parameters.chunk = chunk_bytes == 0 ? std::min(choice.parameters.chunk, elements) : elements;
  choice.predicted_us = algorithm.cost(problem, choice.parameters, model);
  return choice;
}

}  // namespace

Result<Choice> choose(const Problem& problem, const CostModel& model, std::string_view forced,
                      std::size_t chunk_bytes) {
  Choice best;
  for (const Algorithm& algorithm : algorithms()) {
    if (!serves(algorithm, problem)) continue;
    if (algorithm.name == forced) return with(algorithm, problem, model, chunk_bytes);
    Choice choice = with(algorithm, problem, model, chunk_bytes);
    if (best.algorithm == nullptr || choice.predicted_us < best.predicted_us) best = std::move(choice);
  }
  if (best.algorithm == nullptr)
    return Status(Code::internal,
                  fmt::format("no algorithm serves {} on {} ranks", title(problem.collective), problem.ranks));
  return best;
}

}  // namespace paceline
