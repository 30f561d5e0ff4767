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
  choice.parameters = parameters_of(algorithm, problem, model, variant);
  choice.predicted_us = time_of(choice, problem, model, tuned);
  return choice;
}

// Whether an algorithm may be chosen: one that has been measured, or of those that are corrected by this machine's
// times where one of them serves. What a machine takes beyond the formulas is in their corrections, so one without any
// would win by that alone. The median of the others' would let a guess beat what is known.
//
// That an algorithm serves is asked last: one that goes by a topology searches it then.
class Competitors {
 public:
  Competitors(const Problem& problem, Paths* paths, const Tuned* tuned, std::span<const Algorithm> rows)
      : problem_(problem), paths_(paths) {
    const auto corrected = [&](const Algorithm& algorithm) {
      return tuned->corrects(algorithm, problem.collective) && serves(algorithm, problem, paths);
    };
    if (tuned != nullptr && std::ranges::any_of(rows, corrected)) corrections_ = tuned;
  }

  [[nodiscard]] bool has(const Algorithm& algorithm) const {
    const bool known =
        corrections_ != nullptr ? corrections_->corrects(algorithm, problem_.collective) : algorithm.measured;
    return known && serves(algorithm, problem_, paths_);
  }

 private:
  const Problem& problem_;
  Paths* const paths_;
  const Tuned* corrections_ = nullptr;
};

// For a problem that is the same on all ranks.
Result<Choice> choose_for_all(const Problem& problem, const CostModel& model, std::string_view forced,
                              const Variant& asked, const Tuned* tuned, std::span<const Algorithm> rows) {
  Paths* const paths = model.paths.get();
  const auto named = std::ranges::find(rows, forced, &Algorithm::name);
  if (named != rows.end() && serves(*named, problem, paths))
    return with(*named, problem, model, {.chunk = asked.chunk, .radix = asked.radix}, tuned);
  const std::size_t bytes = problem.count * model.element;
  if (const TableRow* fastest = tuned == nullptr ? nullptr : tuned->fastest(problem, bytes, paths)) {
    Variant variant = fastest->variant;
    if (asked.chunk > 0) variant.chunk = asked.chunk;
    return with(*fastest->algorithm, problem, model, variant, tuned);
  }
  const Competitors competitors(problem, paths, tuned, rows);
  Choice best;
  for (const Algorithm& algorithm : rows) {
    if (!competitors.has(algorithm)) continue;
    Choice choice = with(algorithm, problem, model, {.chunk = asked.chunk}, tuned);
    if (best.algorithm == nullptr || choice.predicted_us < best.predicted_us) best = std::move(choice);
  }
  if (best.algorithm == nullptr)
    return Status(Code::internal,
                  fmt::format("no algorithm serves {} on {} ranks", title(problem.collective), problem.ranks));
  return best;
}

}  // namespace

bool chosen_in_place(Collective which, const Tuned* tuned) { return tuned == nullptr && may_be_in_place(which); }

Result<Choice> choose(const Problem& problem, const CostModel& model, std::string_view forced, const Variant& asked,
                      const Tuned* tuned, std::span<const Algorithm> rows) {
  Problem common = problem;
  common.in_place = chosen_in_place(problem.collective, tuned);
  auto choice = choose_for_all(common, model, forced, asked, tuned, rows);
  if (choice.ok() && problem.in_place != common.in_place)
    choice->predicted_us = time_of(*choice, problem, model, tuned);
  return choice;
}

}  // namespace paceline
