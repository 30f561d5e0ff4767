#include "algorithms/table.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "algorithms/tested.h"

namespace paceline {
namespace {

std::string manual_text() {
  std::ifstream file(PACELINE_MANUAL "/algorithms.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("the algorithm that is asked for is in the table") {
  INFO("PACELINE_TEST_ALGORITHM=", std::string(testing::asked_for()));
  CHECK(!testing::tested().empty());
}

TEST_CASE("rows have names of their own and one sentence each") {
  std::set<std::string_view> names;
  for (const Algorithm& algorithm : testing::tested()) {
    INFO(std::string(algorithm.name));
    CHECK(names.insert(algorithm.name).second);
    CHECK(algorithm_named(algorithm.name) == &algorithm);
    CHECK(algorithm.sentence.ends_with('.'));
    CHECK(!algorithm.collectives.empty());
    CHECK(algorithm.name.size() < 48);  // pacePlanInfo_t
  }
  CHECK(algorithm_named("none") == nullptr);
}

TEST_CASE("the manual lists every row") {
  const std::string manual = manual_text();
  for (const Algorithm& algorithm : testing::tested()) {
    std::string collectives;
    for (const Collective which : algorithm.collectives)
      collectives += (collectives.empty() ? "" : ", ") + std::string(title(which));
    const std::string row =
        "| `" + std::string(algorithm.name) + "` | " + collectives + " | " + std::string(algorithm.sentence) + " |";
    INFO(row);
    CHECK(manual.find(row) != std::string::npos);
  }
}

TEST_CASE("the manual says which rows do not serve every number of ranks") {
  const std::string manual = manual_text();
  const std::size_t end = manual.find("; all others take");
  REQUIRE(end != std::string::npos);
  const std::size_t begin = manual.rfind("\n\n", end);
  const std::string sentence = manual.substr(begin, end - begin);
  for (const Algorithm& algorithm : testing::tested()) {
    bool every = true;
    for (int n = 1; n <= 64; ++n)
      every = every && serves(algorithm, {.collective = algorithm.collectives[0], .ranks = n});
    INFO(std::string(algorithm.name), ": ", sentence);
    CHECK((sentence.find('`' + std::string(algorithm.name) + '`') != std::string::npos) == !every);
  }
}

TEST_CASE("one rank alone is served, whatever the row says of more") {
  Algorithm pairs = *algorithm_named("ring");
  pairs.applies = [](const Problem& problem) { return problem.ranks == 2; };
  for (const int n : {1, 2, 3}) CHECK(serves(pairs, {.collective = Collective::all_gather, .ranks = n}) == (n < 3));
  CHECK_FALSE(serves(pairs, {.collective = Collective::barrier, .ranks = 1}));
}

TEST_CASE("every collective has measured algorithms for every number of ranks") {
  for (int which = 0; which < collective_count; ++which) {
    for (int n = 1; n <= 70; ++n) {
      const Problem problem{.collective = static_cast<Collective>(which), .ranks = n};
      int found = 0;
      for (const Algorithm& algorithm : algorithms()) found += algorithm.measured && serves(algorithm, problem);
      CHECK(found >= 2);
    }
  }
}

TEST_CASE("the channels of a long message are told as its whole schedule has them") {
  testing::Served served;
  for (const Algorithm& algorithm : testing::tested()) {
    for (const Collective which : algorithm.collectives) {
      for (int n = 1; n <= 9; ++n) {
        for (int node_ranks = 1; node_ranks <= n; ++node_ranks) {
          if (n % node_ranks != 0) continue;
          for (const std::size_t count : {0, 1, 2, 7, 100, 5000}) {
            for (const std::size_t chunk : {1, 64, 3000, 10000}) {
              const Problem problem{.collective = which, .ranks = n, .root = n - 1, .count = count};
              if (!served(algorithm, problem)) continue;
              const Parameters parameters{.chunk = chunk, .node_ranks = node_ranks, .paths = testing::paths_of(n)};
              Schedule whole(problem, parameters, n - 1);
              algorithm.write(whole);
              INFO(fmt::format("{} of {} on {} ranks, {} a node, chunk {}", algorithm.name, count, n, node_ranks,
                               chunk));
              CHECK(channels_of(algorithm, problem, parameters) == whole.channels());
            }
          }
        }
      }
    }
  }
}

TEST_CASE("rows that say so give nothing but inputs") {
  std::string said;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.gives_only_inputs == nullptr) continue;
    for (const Collective which : algorithm.collectives) {
      for (const int n : {2, 3, 8}) {
        const Problem problem{.collective = which, .ranks = n, .root = n - 1, .count = 100};
        if (!algorithm.gives_only_inputs(problem)) continue;
        const std::string of = fmt::format("{} {} {}", algorithm.name, name(which), n);
        said += of + "; ";
        INFO(of);
        Schedule whole(problem, {.chunk = 30});
        algorithm.write(whole);
        for (int rank = 0; rank < n; ++rank)
          for (const Step& step : whole.steps(rank))
            if (step.action == Action::send) CHECK(step.source.buffer == Buffer::input);
      }
    }
  }
  CHECK(said ==
        "direct scatter 2; direct scatter 3; direct scatter 8; direct all_to_all 2; direct all_to_all 3; "
        "direct all_to_all 8; knomial scatter 2; ");
}

TEST_CASE("scatter_doubling is for powers of two") {
  const Algorithm& algorithm = *algorithm_named("scatter_doubling");
  CHECK(serves(algorithm, {.collective = Collective::broadcast, .ranks = 8}));
  CHECK_FALSE(serves(algorithm, {.collective = Collective::broadcast, .ranks = 12}));
  CHECK_FALSE(serves(algorithm, {.collective = Collective::all_reduce, .ranks = 8}));
}

}  // namespace paceline
