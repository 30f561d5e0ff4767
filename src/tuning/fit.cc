#include "tuning/fit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tuning/cost_constants.h"

namespace paceline {
namespace {

struct Sample {
  const Algorithm* algorithm;
  Problem problem;
  Parameters parameters;  // as it ran
  double us;
};

std::vector<Sample> samples_of(const CostModel& base, int ranks, const std::vector<Curve>& curves) {
  std::vector<Sample> samples;
  for (const Curve& curve : curves) {
    if (curve.variant != Variant()) continue;  // the model's constants are for what algorithms choose themselves
    for (const Point& point : curve.points) {
      const Problem problem{curve.collective, ranks, 0, point.bytes / base.element, false};
      if (serves(*curve.algorithm, problem))
        samples.push_back({curve.algorithm, problem, curve.algorithm->parameters(problem, base), point.us});
    }
  }
  return samples;
}

double log_error(const Sample& sample, const CostModel& model) {
  return std::abs(std::log(sample.algorithm->cost(sample.problem, sample.parameters, model) / sample.us));
}

double total_error(const std::vector<Sample>& samples, const CostModel& model) {
  double sum = 0;
  for (const Sample& sample : samples) sum += log_error(sample, model);
  return sum;
}

// A constant that the times hardly tell stays where it was: moving one by a factor of e must make up for itself by such
// a part of the mean error. Else what it is found to be at one number of ranks says nothing about another.
constexpr double reluctance = 0.005;

// A constant that is looked for: a rate or time by factors; by differences a share, or what may well be nothing.
struct Unknown {
  static constexpr double least = 1e-3, most = 1e6;  // of what is looked for by factors
  static constexpr double nothing = 0.02;            // us: of two shorter times neither is far from the other

  double CostModel::*field;
  double difference;  // what changes it as a factor of e does a rate; 0: by factors
  double highest;     // of a difference's

  void set(CostModel& model, double value) const {
    model.*field = difference > 0 ? std::clamp(value, 0.0, highest) : std::clamp(value, least, most);
  }
  void move(CostModel& model, double by) const {
    set(model, difference > 0 ? model.*field + difference * by : model.*field * std::exp(by));
  }
  // How far the one is from the other, in steps of move().
  [[nodiscard]] double distance(const CostModel& a, const CostModel& b) const {
    if (difference > 0) return std::abs(a.*field - b.*field) / difference;
    return std::abs(std::log(std::max(a.*field, nothing) / std::max(b.*field, nothing)));
  }
  // As far again as from `before`.
  void repeat(CostModel& model, const CostModel& before) const {
    const double value = model.*field;
    set(model, difference > 0 ? 2 * value - before.*field : value * value / std::max(before.*field, least));
  }
};
bool is_told(const CostConstant& constant, const CostModel& base) {
  const bool in_memory = base.multicast_share == 0 && base.node_ranks == 1;
  switch (constant.told) {
    case CostConstant::by_all: return true;
    case CostConstant::in_memory: return in_memory;
    case CostConstant::elsewhere: return !in_memory;
    case CostConstant::by_sharing: return base.sharing > 1;
    case CostConstant::by_nodes: return base.node_ranks > 1;
    case CostConstant::by_others:
    case CostConstant::by_place: return false;
  }
  return false;
}

std::vector<Unknown> unknowns(const CostModel& base) {
  std::vector<Unknown> fields;
  for (const CostConstant& constant : cost_constants)
    if (is_told(constant, base))
      fields.push_back({constant.field, constant.quantity.search_step, constant.quantity.in_profiles.most});
  return fields;
}

}  // namespace

double median_error(const CostModel& model, const CostModel& base, int ranks, const std::vector<Curve>& curves) {
  std::vector<double> errors;
  for (const Sample& sample : samples_of(base, ranks, curves)) errors.push_back(std::expm1(log_error(sample, model)));
  std::ranges::sort(errors);
  return errors.empty() ? 0 : errors[errors.size() / 2];
}

CostModel fit(const CostModel& base, int ranks, const std::vector<Curve>& curves) {
  const auto samples = samples_of(base, ranks, curves);
  const auto fields = unknowns(base);
  CostModel best = base;
  const auto badness = [&](const CostModel& model) {
    double moved = 0;
    for (const Unknown& field : fields) moved += field.distance(model, base);
    return total_error(samples, model) + reluctance * static_cast<double>(samples.size()) * moved;
  };
  double least = badness(best);
  const auto better = [&](const CostModel& tried) {
    const double sum = badness(tried);
    if (!(sum < least * (1 - 1e-9))) return false;  // what is less than that is rounding, and goes on for ever
    least = sum;
    best = tried;
    return true;
  };
  const auto each_alone = [&](double step) {
    bool improved = false;
    for (const double direction : {step, -step}) {
      for (const Unknown& field : fields) {
        CostModel tried = best;
        field.move(tried, direction);
        improved = better(tried) || improved;
      }
    }
    return improved;
  };
  // Where one constant has what another lacks, neither can go alone.
  const auto in_pairs = [&](double step) {
    bool improved = false;
    for (std::size_t i = 0; i < fields.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        for (const auto& [first, second] : {std::pair{step, step}, {step, -step}, {-step, step}, {-step, -step}}) {
          CostModel tried = best;
          fields[i].move(tried, first);
          fields[j].move(tried, second);
          improved = better(tried) || improved;
        }
      }
    }
    return improved;
  };
  CostModel before;
  for (double step = 1; step > 0.002 && !samples.empty();) {  // of ln: the first one tries factors of e
    before = best;
    if (!each_alone(step) && !in_pairs(step)) {
      step /= 2;
      continue;
    }
    // What has helped may help again: all of it at once leads along valleys that no constant alone can follow.
    for (bool goes_on = true; goes_on;) {
      CostModel tried = best;
      for (const Unknown& field : fields) field.repeat(tried, before);
      goes_on = better(tried);
    }
  }
  return best;
}

}  // namespace paceline
