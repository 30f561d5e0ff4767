#include "tuning/choice.h"

#include <fmt/format.h>

namespace paceline {
namespace {

Choice with(const Algorithm& algorithm, const Problem& problem, const CostModel& model, const Variant& variant,
            const Tuned* tuned) {
  const std::size_t chunk_bytes = variant.chunk;
  Choice choice;
  choice.protocol = variant.protocol;
  choice.algorithm = &algorithm;
  choice.parameters = algorithm.parameters(problem, model);
  choice.parameters.order = model.order;
  const std::size_t limit = chunk_bytes == 0 ? model.largest_chunk : std::min(chunk_bytes, model.largest_chunk);
  const std::size_t elements = std::max<std::size_t>(1, limit / model.element);
  choice.parameters.chunk = chunk_bytes == 0 ? std::min(choice.parameters.chunk, elements) : elements;
  choice.predicted_us = algorithm.cost(problem, choice.parameters, model);
  if (tuned != nullptr)
    choice.predicted_us *= tuned->correction(algorithm, problem, problem.count * model.element, variant);
  return choice;
}

}  // namespace

Result<Choice> choose(const Problem& problem, const CostModel& model, std::string_view forced, std::size_t chunk_bytes,
                      const Tuned* tuned) {
  const TableRow* fastest = tuned == nullptr ? nullptr : tuned->fastest(problem, problem.count * model.element);
  const Variant own{.chunk = chunk_bytes};
  Choice best;
  if (fastest != nullptr) {
    Variant variant = fastest->variant;
    if (chunk_bytes > 0) variant.chunk = chunk_bytes;
    best = with(*fastest->algorithm, problem, model, variant, tuned);
  }
  for (const Algorithm& algorithm : algorithms()) {
    if (!serves(algorithm, problem)) continue;
    if (algorithm.name == forced) return with(algorithm, problem, model, own, tuned);
    if (fastest != nullptr) continue;
    Choice choice = with(algorithm, problem, model, own, tuned);
    if (best.algorithm == nullptr || choice.predicted_us < best.predicted_us) best = std::move(choice);
  }
  if (best.algorithm == nullptr)
    return Status(Code::internal,
                  fmt::format("no algorithm serves {} on {} ranks", title(problem.collective), problem.ranks));
  return best;
}

}  // namespace paceline
