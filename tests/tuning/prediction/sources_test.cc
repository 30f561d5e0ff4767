#include "tuning/prediction/sources.h"

#include <doctest/doctest.h>

#include <numeric>

#include "schedule/star.h"
#include "tuning/prediction/closed_forms.h"

namespace paceline {
namespace {

constexpr closed_forms::Rates rates{.start = 3, .bandwidth = 12500};

struct Case {
  explicit Case(int ranks) : topology(star(ranks, rates.bandwidth / 1000)), finder(topology) {
    machine.start = rates.start;
    sources.gpus.resize(static_cast<std::size_t>(ranks));
    std::iota(sources.gpus.begin(), sources.gpus.end(), 0);
    sources.elements = std::size_t{1} << 19;
  }
  Topology topology;
  WayFinder finder;
  Machine machine;  // one port a rank
  Sources sources;
};

constexpr double bytes = 2 << 20;

doctest::Approx equals(double value) { return doctest::Approx(value).epsilon(1e-9); }

}  // namespace

TEST_CASE("k-nomial, one source after another, is the formula's on powers of two") {
  for (const int n : {2, 4, 16, 64}) {
    for (const int m : {1, 2, n / 2}) {
      Case it(n);
      it.sources.count = m;
      const double chunk = 512 << 10;
      const auto time = knomial_sources_time(it.finder, it.machine, it.sources, std::size_t{128} << 10);
      REQUIRE(time.ok());
      CHECK(*time == equals(m * closed_forms::knomial_in_chunks(bytes, chunk, n, 2, rates)));
    }
  }
}

TEST_CASE("round a ring any number of sources takes as long as one") {
  for (const int n : {2, 3, 8, 33}) {
    for (const int m : {1, 2, n / 2 + 1, n}) {
      Case it(n);
      it.sources.count = std::min(m, n);
      const auto time = ring_sources_time(it.finder, it.machine, it.sources);
      REQUIRE(time.ok());
      CHECK(*time == equals(closed_forms::ring_sources(bytes, n, rates)));
    }
  }
}

}  // namespace paceline
