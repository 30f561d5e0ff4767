#include "tuning/choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace paceline {
namespace {

double time_of(const Choice& choice, const Problem& problem, const CostModel& model, const Tuned* tuned) {
  const double cost = choice.algorithm->cost(problem, choice.parameters, model);
  if (tuned == nullptr) return cost;
  return cost * tuned->correction(*choice.algorithm, problem, problem.count * model.element, choice.variant);
}

Choice with(const Algorithm& algorithm, const Problem& problem, const CostModel& model, const Variant& variant,
            const Tuned* tuned) {
  Choice choice;
  choice.variant = variant;
  choice.algorithm = &algorithm;
  choice.parameters = algorithm.parameters(problem, model);
  choice.parameters.order = model.order;
  choice.parameters.paths = model.paths;
  const std::size_t limit = variant.chunk == 0 ? model.largest_chunk : std::min(variant.chunk, model.largest_chunk);
  const std::size_t elements = std::max<std::size_t>(1, limit / model.element);
  choice.parameters.chunk = variant.chunk == 0 ? std::min(choice.parameters.chunk, elements) : elements;
  choice.predicted_us = time_of(choice, problem, model, tuned);
  return choice;
}

// Whether only measured algorithms compete: if one of them serves. What a machine takes beyond the formulas is in their
// corrections, so one without any would win by that alone. The median of the others' would let a guess beat what is
// known.
bool compares_measured_alone(const Problem& problem, Paths* paths, const Tuned* tuned) {
  return tuned != nullptr && std::ranges::any_of(algorithms(), [&](const Algorithm& algorithm) {
           return serves(algorithm, problem, paths) && tuned->corrects(algorithm, problem.collective);
         });
}

// For a problem that is the same on all ranks.
Result<Choice> choose_for_all(const Problem& problem, const CostModel& model, std::string_view forced,
                              std::size_t chunk_bytes, const Tuned* tuned, std::span<const Algorithm> rows) {
  Paths* const paths = model.paths.get();
  const TableRow* fastest = tuned == nullptr ? nullptr : tuned->fastest(problem, problem.count * model.element, paths);
  const bool measured_alone = compares_measured_alone(problem, paths, tuned);
  const Variant own{.chunk = chunk_bytes};
  Choice best;
  if (fastest != nullptr) {
    Variant variant = fastest->variant;
    if (chunk_bytes > 0) variant.chunk = chunk_bytes;
    best = with(*fastest->algorithm, problem, model, variant, tuned);
  }
  for (const Algorithm& algorithm : rows) {
    if (!serves(algorithm, problem, paths)) continue;
    if (algorithm.name == forced) return with(algorithm, problem, model, own, tuned);
    if (fastest != nullptr) continue;
    if (measured_alone ? !tuned->corrects(algorithm, problem.collective) : !algorithm.measured) continue;
    Choice choice = with(algorithm, problem, model, own, tuned);
    if (best.algorithm == nullptr || choice.predicted_us < best.predicted_us) best = std::move(choice);
  }
  if (best.algorithm == nullptr)
    return Status(Code::internal,
                  fmt::format("no algorithm serves {} on {} ranks", title(problem.collective), problem.ranks));
  return best;
}

}  // namespace

bool chosen_in_place(Collective which, const Tuned* tuned) { return tuned == nullptr && may_be_in_place(which); }

Result<Choice> choose(const Problem& problem, const CostModel& model, std::string_view forced, std::size_t chunk_bytes,
                      const Tuned* tuned, std::span<const Algorithm> rows) {
  Problem common = problem;
  common.in_place = chosen_in_place(problem.collective, tuned);
  auto choice = choose_for_all(common, model, forced, chunk_bytes, tuned, rows);
  if (choice.ok() && problem.in_place != common.in_place)
    choice->predicted_us = time_of(*choice, problem, model, tuned);
  return choice;
}

}  // namespace paceline
