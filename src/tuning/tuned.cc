#include "tuning/tuned.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "algorithms/surplus.h"
#include "tuning/cost_constants.h"

namespace paceline {
namespace {

// Linear in logarithms: constants and times are ratios.
double between(double a, double b, double share) {
  if (a <= 0 || b <= 0) return a + (b - a) * share;
  return a * std::pow(b / a, share);
}

double log_size(std::size_t bytes) { return std::log2(static_cast<double>(std::max<std::size_t>(bytes, 1))); }

const Curve* curve_of(const Setting& setting, const Algorithm& algorithm, Collective collective,
                      const Variant& variant) {
  const auto found = std::ranges::find_if(setting.curves, [&](const Curve& one) {
    return one.collective == collective && one.algorithm == &algorithm && one.variant == variant;
  });
  return found == setting.curves.end() ? nullptr : &*found;
}

// ln of measured over predicted, of one setting's curve at a size; nothing: there is no curve.
std::optional<double> log_ratio(const Setting& setting, const Algorithm& algorithm, const Problem& problem,
                                std::size_t bytes, const Variant& variant) {
  const Curve* curve = curve_of(setting, algorithm, problem.collective, variant);
  if (curve == nullptr) curve = curve_of(setting, algorithm, problem.collective, {});
  if (curve == nullptr) return std::nullopt;
  CostModel model = setting.model;
  model.element = measured_element;
  const auto at = [&](const Point& point) {
    Problem measured = problem;
    measured.ranks = setting.ranks;
    measured.root = 0;
    measured.in_place = false;
    measured.count = point.bytes / measured_element;
    if (!serves(algorithm, measured, model.paths.get())) return 0.0;
    const double cost = algorithm.cost(measured, parameters_of(algorithm, measured, model, curve->variant), model);
    return cost > 0 ? std::log(point.us / cost) : 0.0;
  };
  const auto& points = curve->points;
  const auto above = std::ranges::find_if(points, [&](const Point& point) { return point.bytes >= bytes; });
  if (above == points.end()) return at(points.back());
  // Of two measured sizes of 0 and 1 byte the logarithms are the same: there is nothing between them.
  if (above == points.begin() || above->bytes == bytes) return at(*above);
  const auto below = above - 1;
  const double share = (log_size(bytes) - log_size(below->bytes)) / (log_size(above->bytes) - log_size(below->bytes));
  return at(*below) + (at(*above) - at(*below)) * share;
}

// With what a file does not say, since it follows from the transport.
Setting completed(Setting setting) {
  if (setting.transport != "shm") {
    setting.model.chunk_start = setting.model.start;
    setting.model.passing_share = 1;
    setting.model.common_share = 0;
  } else if (setting.model.sharing > 1) {
    setting.model.passing_share = CostModel::passing_share_of(setting.model.sharing);
  }
  return setting;
}

}  // namespace

std::shared_ptr<const Tuned> Tuned::of(const Profile& profile, std::string_view transport, int ranks, int node_ranks) {
  const Setting* low = nullptr;
  const Setting* high = nullptr;
  for (const Setting& setting : profile.settings) {
    if (setting.transport != transport || setting.model.node_ranks != node_ranks) continue;
    if (setting.ranks <= ranks && (low == nullptr || setting.ranks > low->ranks)) low = &setting;
    if (setting.ranks >= ranks && (high == nullptr || setting.ranks < high->ranks)) high = &setting;
  }
  if (low == nullptr) low = high;
  if (high == nullptr) high = low;
  if (low == nullptr) return nullptr;
  auto tuned = std::make_shared<Tuned>();
  tuned->low_ = completed(*low);
  tuned->high_ = completed(*high);
  tuned->ranks_ = ranks;
  return tuned;
}

double Tuned::share(int ranks) const {
  if (ranks <= low_.ranks || low_.ranks == high_.ranks) return 0;
  return std::log(static_cast<double>(ranks) / low_.ranks) / std::log(static_cast<double>(high_.ranks) / low_.ranks);
}

CostModel Tuned::model(CostModel base) const {
  const double high_share = share(ranks_);
  for (const CostConstant& constant : cost_constants) {
    if (constant.told == CostConstant::by_sharing || constant.told == CostConstant::by_place) continue;
    if (constant.told == CostConstant::by_nodes && base.node_ranks == 1) continue;
    base.*constant.field = between(low_.model.*constant.field, high_.model.*constant.field, high_share);
  }
  // What a turn of the others costs is known only where ranks shared CPUs.
  if (const double sharing = std::max(low_.model.sharing, high_.model.sharing); base.sharing > 1 && sharing > 1)
    base.switching = std::max(low_.model.switching, high_.model.switching);
  return base;
}

const TableRow* Tuned::fastest(const Problem& problem, std::size_t bytes, Paths* paths) const {
  for (const Setting* setting : {&low_, &high_}) {
    if (setting->ranks != ranks_) continue;
    for (const TableRow& row : setting->table)
      if (row.collective == problem.collective && bytes >= row.from && bytes < row.below &&
          serves(*row.algorithm, problem, paths))
        return &row;
  }
  return nullptr;
}

double Tuned::correction(const Algorithm& algorithm, const Problem& problem, std::size_t bytes,
                         const Variant& variant) const {
  // What caches make of an exchange depends on how many take part in it.
  const int exchanging = algorithm.by_actors ? Surplus(ranks_).actors : ranks_;
  const std::optional<double> low = log_ratio(low_, algorithm, problem, bytes, variant);
  const std::optional<double> high = log_ratio(high_, algorithm, problem, bytes, variant);
  if (!low || !high) return std::exp(low.value_or(high.value_or(0)));
  return std::exp(*low + (*high - *low) * share(exchanging));
}

bool Tuned::measured(const Algorithm& algorithm, Collective collective, std::size_t bytes,
                     const Variant& variant) const {
  return std::ranges::any_of(std::initializer_list<const Setting*>{&low_, &high_}, [&](const Setting* setting) {
    const Curve* curve = curve_of(*setting, algorithm, collective, variant);
    return setting->ranks == ranks_ && curve != nullptr && !curve->points.empty() &&
           bytes >= curve->points.front().bytes && bytes <= curve->points.back().bytes;
  });
}

bool Tuned::corrects(const Algorithm& algorithm, Collective collective) const {
  return curve_of(low_, algorithm, collective, {}) != nullptr || curve_of(high_, algorithm, collective, {}) != nullptr;
}

}  // namespace paceline
