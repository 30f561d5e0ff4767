#include "schedule/fair_shares.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

namespace paceline {
namespace {

// Fills all flows evenly until a link is full, and again without its flows: the definition.
std::map<int, double> filled(const std::vector<double>& capacities, const std::map<int, std::vector<int>>& flows) {
  std::map<int, double> rates;
  std::vector<double> left = capacities;
  while (rates.size() < flows.size()) {
    std::vector<int> open(left.size());
    for (const auto& [flow, links] : flows)
      if (!rates.contains(flow))
        for (const int link : links) ++open[static_cast<std::size_t>(link)];
    std::size_t fullest = left.size();
    for (std::size_t l = 0; l < left.size(); ++l)
      if (open[l] > 0 && (fullest == left.size() || left[l] / open[l] < left[fullest] / open[fullest])) fullest = l;
    const double share = left[fullest] / open[fullest];
    for (const auto& [flow, links] : flows) {
      if (rates.contains(flow) || std::count(links.begin(), links.end(), static_cast<int>(fullest)) == 0) continue;
      rates[flow] = share;
      for (const int link : links) left[static_cast<std::size_t>(link)] -= share;
    }
  }
  return rates;
}

}  // namespace

TEST_CASE("rates are those of filling all flows anew, whatever comes and goes") {
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 60; ++round) {
    const int links = 3 + below(20);
    std::vector<double> capacities;
    for (int l = 0; l < links; ++l) capacities.push_back(1 + below(round % 3 == 0 ? 2 : 12));
    FairShares shares(capacities);
    std::map<int, std::vector<int>> flows;
    std::vector<std::vector<int>> kept;  // the flows' links stay where they are
    kept.reserve(4096);
    for (int time = 0; time < 120; ++time) {
      for (int change = 0; change <= below(4); ++change) {
        if (flows.size() > 3 && below(100) < 45) {
          const auto gone = std::next(flows.begin(), below(static_cast<int>(flows.size())));
          shares.remove(gone->first);
          flows.erase(gone);
          continue;
        }
        auto& way = kept.emplace_back();
        for (int hop = 0; hop <= below(4); ++hop)
          if (const int link = below(links); std::count(way.begin(), way.end(), link) == 0) way.push_back(link);
        flows[shares.add(way, 1e9, time)] = way;
      }
      shares.settle(time);
      for (const auto& [flow, rate] : filled(capacities, flows))
        REQUIRE(shares.rate(flow) == doctest::Approx(rate).epsilon(1e-7));
    }
    for (const double peak : shares.peaks()) CHECK(peak <= 1 + 1e-9);
  }
}

TEST_CASE("a flow's end follows its rate") {
  FairShares shares({10.0, 4.0});
  const std::vector<int> first{0};
  const std::vector<int> both{0, 1};
  const int a = shares.add(first, 100, 0);
  shares.settle(0);
  CHECK(shares.finish(a) == doctest::Approx(10));
  const int b = shares.add(both, 8, 2);
  shares.settle(2);
  CHECK(shares.finish(b) == doctest::Approx(4));
  CHECK(shares.finish(a) == doctest::Approx(2 + 80.0 / 6));
  CHECK(shares.changed().size() == 2);
  shares.remove(b);
  shares.settle(4);
  CHECK(shares.finish(a) == doctest::Approx(4 + 68.0 / 10));
}

}  // namespace paceline
