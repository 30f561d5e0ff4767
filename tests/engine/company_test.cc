#include "engine/company.h"

#include <doctest/doctest.h>

#include <limits>

namespace paceline {
namespace {

using std::chrono::milliseconds;

constexpr int others_run = 0;  // of this node no rank; and this test runs
constexpr int nobody_else_runs = std::numeric_limits<int>::max();

// A rank that does nothing but wait, by the clock of its own that it is given.
struct Rank {
  Company company;
  Company::Time now;
  int ranks = others_run;

  // One wait, as long as waits take by yielding or by sleeping; whether it slept.
  bool wait(double by_yields_us, double by_sleep_us) {
    const bool sleeps = company.sleeps(now);
    const double us = sleeps ? by_sleep_us : by_yields_us;
    now += std::chrono::duration_cast<Company::Time::duration>(std::chrono::duration<double, std::micro>(us));
    if (!sleeps) company.yielded(us, now, ranks);
    if (company.measures()) company.waited(us);
    return sleeps;
  }
  // How much of the time it sleeps.
  double share(double by_yields_us, double by_sleep_us, milliseconds time) {
    Company::Time::duration slept{};
    const Company::Time begin = now;
    while (now - begin < time) {
      const Company::Time wait_begin = now;
      if (wait(by_yields_us, by_sleep_us)) slept += now - wait_begin;
    }
    return std::chrono::duration<double>(slept) / std::chrono::duration<double>(now - begin);
  }
};

Rank rank_at(int ms) {
  Rank rank;
  rank.now += milliseconds(ms);
  return rank;
}

}  // namespace

TEST_CASE("company: where waits take a tenth by sleeping, ranks sleep nearly all the time") {
  Rank rank = rank_at(5'000'077);
  CHECK(rank.share(4000, 400, milliseconds(20'000)) > 0.75);
  CHECK(rank.share(4000, 4000, milliseconds(2'000)) < 0.7);  // the other program has gone
  CHECK(rank.share(4000, 4000, milliseconds(20'000)) < 0.03);
  CHECK(rank.share(4000, 100, milliseconds(10'000)) > 0.4);  // and comes again
}

TEST_CASE("company: who gains nothing, or little, by sleeping, hardly tries") {
  for (const double by_sleep_us : {2000.0, 4000.0, 8000.0}) {
    Rank rank = rank_at(123'456);
    CHECK(rank.share(4000, by_sleep_us, milliseconds(20'000)) < 0.03);
  }
}

TEST_CASE("company: short turns are those of other ranks, and long ones too where nobody else runs") {
  Rank rank = rank_at(7);
  CHECK(rank.share(500, 10, milliseconds(3'000)) == 0);
  rank.ranks = nobody_else_runs;
  CHECK(rank.share(4000, 10, milliseconds(3'000)) == 0);
}

TEST_CASE("company: ranks try at the same time, whenever they began to wait") {
  Rank one = rank_at(10'000), other = rank_at(10'003);
  for (Rank* rank : {&one, &other})
    while (!rank->wait(4000, 100)) continue;
  CHECK(std::chrono::abs(one.now - other.now) < milliseconds(5));
}

}  // namespace paceline
