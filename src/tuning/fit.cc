#include "tuning/fit.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

double median_error(const CostModel& model, const CostModel& base, int ranks, const std::vector<Curve>& curves) {
  std::vector<double> errors;
  for (const Sample& sample : samples_of(base, ranks, curves)) errors.push_back(std::expm1(log_error(sample, model)));
  std::ranges::sort(errors);
  return errors.empty() ? 0 : errors[errors.size() / 2];
}

CostModel fit(const CostModel& base, int ranks, const std::vector<Curve>& curves) {
  const auto samples = samples_of(base, ranks, curves);
  std::vector<double CostModel::*> rates{&CostModel::start,           &CostModel::step,
                                         &CostModel::partner,         &CostModel::receiver,
                                         &CostModel::bandwidth,       &CostModel::reduce_bandwidth,
                                         &CostModel::write_bandwidth, &CostModel::copy_bandwidth};
  if (base.sharing > 1) rates.push_back(&CostModel::switching);
  if (base.node_ranks > 1) rates.insert(rates.end(), {&CostModel::node_start, &CostModel::cable, &CostModel::stream});
  CostModel best = base;
  double least = total_error(samples, best);
  const auto better = [&](const CostModel& tried) {
    const double sum = total_error(samples, tried);
    if (!(sum < least)) return false;
    least = sum;
    best = tried;
    return true;
  };
  constexpr double CostModel::*shares[] = {&CostModel::duplex, &CostModel::multicast_share};
  const auto set_rate = [](double& rate, double value) { rate = std::clamp(value, 1e-3, 1e6); };
  const auto set_share = [](double& share, double value) { share = std::clamp(value, 0.0, 1.0); };
  for (double step = 1; step > 0.002 && !samples.empty();) {  // of ln: the first one tries factors of e
    const CostModel before = best;
    bool improved = false;
    for (const double direction : {step, -step}) {
      for (double CostModel::*const field : rates) {
        CostModel tried = best;
        set_rate(tried.*field, tried.*field * std::exp(direction));
        improved = better(tried) || improved;
      }
      for (double CostModel::*const field : shares) {
        CostModel tried = best;
        set_share(tried.*field, tried.*field + 0.3 * direction);
        improved = better(tried) || improved;
      }
    }
    // What has helped may help again: all of it at once leads along valleys that no constant alone can follow.
    for (bool goes_on = improved; goes_on;) {
      CostModel tried = best;
      for (double CostModel::*const field : rates) set_rate(tried.*field, best.*field * (best.*field / before.*field));
      for (double CostModel::*const field : shares) set_share(tried.*field, 2 * best.*field - before.*field);
      goes_on = better(tried);
    }
    if (!improved) step /= 2;
  }
  return best;
}

}  // namespace paceline
