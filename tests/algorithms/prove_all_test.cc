// Every algorithm of the table is proved for every number of ranks from 1 to 64, and a spread of roots, sizes, chunks,
// radices and orders. PACELINE_TEST_LONG=1 widens the spread, PACELINE_TEST_ALGORITHM=NAME is for one algorithm.
#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <vector>

#include "algorithms/table.h"
#include "algorithms/tested.h"
#include "schedule/proof.h"

namespace paceline {
namespace {

struct Case {
  Problem problem;
  Parameters parameters;
};

std::string describe(const Algorithm& algorithm, const Case& it) {
  return fmt::format("{} {} ranks {} root {} count {} in place {} chunk {} radix {} order of {}", algorithm.name,
                     name(it.problem.collective), it.problem.ranks, it.problem.root, it.problem.count,
                     it.problem.in_place, it.parameters.chunk, it.parameters.radix, it.parameters.order.size());
}

// Backwards, the odd ranks first: neighbours in it are no neighbours in rank.
std::vector<int> other_order(int ranks) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.rbegin(), order.rend(), 0);
  std::stable_partition(order.begin(), order.end(), [](int rank) { return rank % 2 == 1; });
  return order;
}

// What is tried for one collective on n ranks. Small n get every combination, large ones a few: every root that is one
// in some way, each with a radix of its own, up to that of a tree of one level.
std::vector<Case> cases(Collective collective, int n, bool exhaustive) {
  if (collective == Collective::barrier) return {{{.collective = collective, .ranks = n}, {.chunk = 1}}};
  std::set<int> roots{0};
  const int inner = exhaustive ? n / 2 : n * 2 / 3;
  if (is_rooted(collective)) roots = {0, inner, n - 1};
  // Counts below, at and above n, odd ones, and chunks that do and do not divide them. Where a count is that of one
  // block of n, it need not grow with n.
  const bool in_blocks = input_elements({collective, n, 0, 1}, 0) + output_elements({collective, n, 0, 1}, 0) > 2;
  const std::size_t scale = in_blocks ? 1 : static_cast<std::size_t>(n);
  using Size = std::pair<std::size_t, std::size_t>;
  const std::vector<Size> all{{1, 1},  {3, 2},         {scale, 1},          {scale * 3 + 1, 2},
                              {17, 5}, {7 * scale, 7}, {scale * 12 + 5, 3}, {1024 * scale + 37, 700}};
  const std::vector<Size> few{{scale * 2 + 3, in_blocks ? 2 : 1}, {scale - scale / 3, 4}};
  const auto radices = [&](int root) {
    if (exhaustive) return std::vector{2, 3, 5};
    if (!is_rooted(collective) || root == inner) return std::vector{2 + n % 4};
    return std::vector{root == 0 ? std::max(2, n) : 7};
  };
  std::vector<Case> result;
  for (const int root : roots)
    for (const auto& [count, chunk] : exhaustive ? all : few)
      for (const bool in_place : {false, true})
        for (const int radix : radices(root))
          for (const bool reordered : {false, true}) {
            if (!exhaustive && is_rooted(collective) && root != inner && count != few.front().first) continue;
            if (!exhaustive && reordered != (in_place == (n % 2 == 0))) continue;
            result.push_back({{collective, n, root, count, in_place},
                              {.chunk = chunk,
                               .radix = radix,
                               .order = reordered ? other_order(n) : std::vector<int>{},
                               .paths = testing::paths_of(n)}});
          }
  return result;
}

// What a rank's steps send and receive, in their order.
std::string messages_of(Schedule& schedule, int rank) {
  std::string text;
  for (const Step& step : schedule.steps(rank)) {
    if (step.action == Action::copy) continue;
    text += fmt::format("{}.{} {}:", static_cast<int>(step.action), step.channel, step.elements());
    for (const int peer : schedule.peers(rank, step)) text += fmt::format(" {}", peer);
    text += "; ";
  }
  return text;
}

bool is_long() { return std::getenv("PACELINE_TEST_LONG") != nullptr; }

}  // namespace

TEST_CASE("every algorithm is proved for 1 to 64 ranks") {
  int proved = 0;
  for (const Algorithm& algorithm : testing::tested()) {
    for (const Collective collective : algorithm.collectives) {
      std::string first_failure;  // the smallest case; others mostly fail for the same reason
      int failures = 0;
      for (int n = 1; n <= 64; ++n) {
        for (const Case& it : cases(collective, n, n <= (is_long() ? 12 : 6))) {
          if (!serves(algorithm, it.problem, it.parameters.paths.get())) continue;
          Schedule schedule(it.problem, it.parameters);
          algorithm.write(schedule);
          const Status status = prove(schedule);
          if (!status.ok() && failures++ == 0)
            first_failure = fmt::format("{}: {}", describe(algorithm, it), status.message());
          proved += status.ok();
        }
      }
      if (failures > 0) FAIL_CHECK(first_failure, "; ", failures - 1, " more cases fail");
    }
  }
  CHECK(proved > (testing::asked_for().empty() ? 10000 : 0));
}

TEST_CASE("no step of an algorithm can be left out") {
  for (const Algorithm& algorithm : testing::tested()) {
    for (const Collective collective : algorithm.collectives) {
      Problem problem{.collective = collective, .ranks = 6, .root = 1, .count = 13};
      if (collective == Collective::barrier) problem.count = 0;
      if (!serves(algorithm, problem, testing::paths_of(problem.ranks).get())) problem.ranks = 8;
      const Parameters parameters{.chunk = 2, .paths = testing::paths_of(problem.ranks)};
      INFO(std::string(algorithm.name));
      Schedule whole(problem, parameters);
      algorithm.write(whole);
      for (int rank = 0; rank < problem.ranks; ++rank) {
        for (std::size_t left_out = 0; left_out < whole.steps(rank).size(); left_out += 1 + left_out / 8) {
          Schedule broken(problem, parameters);
          for (int r = 0; r < problem.ranks; ++r) {
            broken.need_scratch(r, whole.scratch_elements(r));
            for (std::size_t i = 0; i < whole.steps(r).size(); ++i) {
              const Step& step = whole.steps(r)[i];
              if (r != rank || i != left_out) broken.append(r, step, whole.peers(r, step));
            }
          }
          CHECK_FALSE(prove(broken).ok());
        }
      }
    }
  }
}

TEST_CASE("one rank's part of a schedule is that of the whole") {
  const auto same = [](const Region& a, const Region& b) {
    return a.buffer == b.buffer && a.offset == b.offset && a.count == b.count;
  };
  for (const Algorithm& algorithm : testing::tested()) {
    for (const Collective collective : algorithm.collectives) {
      for (const int n : {1, 2, 3, 5, 8, 13}) {
        for (const Case& it : cases(collective, n, false)) {
          if (!serves(algorithm, it.problem, it.parameters.paths.get())) continue;
          INFO(describe(algorithm, it));
          Schedule whole(it.problem, it.parameters);
          algorithm.write(whole);
          for (int rank = 0; rank < n; ++rank) {
            Schedule part(it.problem, it.parameters, rank);
            algorithm.write(part);
            const auto expected = whole.steps(rank);
            const auto found = part.steps(rank);
            CHECK(part.channels() == whole.channels());
            CHECK(part.scratch_elements(rank) == whole.scratch_elements(rank));
            REQUIRE(found.size() == expected.size());
            for (std::size_t i = 0; i < found.size(); ++i) {
              const auto peers = part.peers(rank, found[i]);
              const auto expected_peers = whole.peers(rank, expected[i]);
              const bool equal = found[i].action == expected[i].action && found[i].channel == expected[i].channel &&
                                 found[i].own == expected[i].own && same(found[i].source, expected[i].source) &&
                                 same(found[i].target, expected[i].target) &&
                                 std::equal(peers.begin(), peers.end(), expected_peers.begin(), expected_peers.end());
              REQUIRE(equal);
            }
          }
        }
      }
    }
  }
}

// One rank may work in place beside another that does not.
TEST_CASE("working in place changes none of a rank's messages") {
  for (const Algorithm& algorithm : testing::tested()) {
    for (const Collective collective : algorithm.collectives) {
      for (int n = 2; n <= 9; ++n) {
        for (Case it : cases(collective, n, n <= 4)) {
          if (!it.problem.in_place || !serves(algorithm, it.problem, it.parameters.paths.get())) continue;
          INFO(describe(algorithm, it));
          Schedule in_place(it.problem, it.parameters);
          it.problem.in_place = false;
          Schedule apart(it.problem, it.parameters);
          algorithm.write(in_place);
          algorithm.write(apart);
          for (int rank = 0; rank < n; ++rank) REQUIRE(messages_of(in_place, rank) == messages_of(apart, rank));
        }
      }
    }
  }
}

}  // namespace paceline
