#include "topology/fractional_packing.h"

#include <cstddef>
#include <limits>
#include <map>

#include "base/index.h"

namespace paceline {
namespace {

constexpr double rounding = 1e-9;
constexpr double unknown = std::numeric_limits<double>::infinity();
constexpr std::size_t most_cells = 1'000'000;
constexpr int most_pivots = 2'000;

// Rows: the links in use, and below them the objective. Columns: the users, and the right-hand side. `basic` and `free`
// number the variables, users before slacks.
class Tableau {
 public:
  Tableau(std::span<const LinkLoads> users, const std::map<int, std::size_t>& row_of, std::span<const Flow> capacity)
      : rows_(row_of.size()), columns_(users.size()), cells_((rows_ + 1) * (columns_ + 1)) {
    for (std::size_t user = 0; user < columns_; ++user) {
      for (const auto& [link, load] : users[user]) cell(row_of.at(link), user) = static_cast<double>(load);
      cell(rows_, user) = -1;
      free_.push_back(user);
    }
    for (const auto& [link, row] : row_of) {
      cell(row, columns_) = static_cast<double>(capacity[at(link)]);
      basic_.push_back(columns_ + row);
    }
  }

  double run() {
    for (int pivots = 0; pivots < most_pivots; ++pivots) {
      const std::size_t entering = choose_column();
      if (entering == columns_) return cell(rows_, columns_);
      pivot(choose_row(entering), entering);
    }
    return unknown;
  }

 private:
  double& cell(std::size_t row, std::size_t column) { return cells_[row * (columns_ + 1) + column]; }

  std::size_t choose_column() {
    std::size_t best = columns_;
    for (std::size_t column = 0; column < columns_; ++column)
      if (cell(rows_, column) < -rounding && (best == columns_ || free_[column] < free_[best])) best = column;
    return best;
  }

  std::size_t choose_row(std::size_t column) {
    std::size_t best = rows_;
    double least = unknown;
    for (std::size_t row = 0; row < rows_; ++row) {
      if (cell(row, column) <= rounding) continue;
      const double ratio = cell(row, columns_) / cell(row, column);
      if (ratio > least || (ratio == least && basic_[row] > basic_[best])) continue;
      least = ratio;
      best = row;
    }
    return best;
  }

  void pivot(std::size_t row, std::size_t column) {
    const double inverse = 1 / cell(row, column);
    for (std::size_t i = 0; i <= rows_; ++i) {
      if (i == row) continue;
      const double factor = cell(i, column) * inverse;
      for (std::size_t j = 0; j <= columns_; ++j)
        if (j != column) cell(i, j) -= factor * cell(row, j);
      cell(i, column) = -factor;
    }
    for (std::size_t j = 0; j <= columns_; ++j) cell(row, j) *= inverse;
    cell(row, column) = inverse;
    std::swap(basic_[row], free_[column]);
  }

  std::size_t rows_;
  std::size_t columns_;
  std::vector<double> cells_;
  std::vector<std::size_t> basic_;
  std::vector<std::size_t> free_;
};

}  // namespace

double fractional_packing(std::span<const LinkLoads> users, std::span<const Flow> capacity) {
  std::map<int, std::size_t> row_of;
  for (const LinkLoads& loads : users)
    for (const auto& [link, load] : loads) row_of.try_emplace(link, 0);
  if ((row_of.size() + 1) * (users.size() + 1) > most_cells) return unknown;
  std::size_t rows = 0;
  for (auto& [link, row] : row_of) row = rows++;
  return Tableau(users, row_of, capacity).run();
}

}  // namespace paceline
