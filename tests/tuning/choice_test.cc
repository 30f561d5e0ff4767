#include "tuning/choice.h"

#include <doctest/doctest.h>

#include <memory>

#include "topology/paths.h"

using namespace paceline;

namespace {

Result<Choice> chosen(Problem problem, const CostModel& model, bool in_place, std::string_view forced = "") {
  problem.in_place = in_place;
  return choose(problem, model, forced);
}

}  // namespace

TEST_CASE("a rank that works in place chooses what the others choose") {
  CostModel small_slots;
  small_slots.largest_chunk = 16 << 10;
  CostModel crowded;
  crowded.sharing = 4;
  crowded.switching = 8;
  for (const CostModel& model : {CostModel(), small_slots, crowded})
    for (int which = 0; which < collective_count; ++which)
      for (const int ranks : {2, 4, 7, 16})
        for (std::size_t count = 1; count <= std::size_t{64} << 20; count = count * 3 / 2 + 1) {
          const Problem problem{.collective = static_cast<Collective>(which), .ranks = ranks, .count = count};
          const auto one = chosen(problem, model, true);
          const auto other = chosen(problem, model, false);
          REQUIRE(one.ok());
          INFO(title(problem.collective), " of ", count, " on ", ranks, " ranks");
          REQUIRE(one->algorithm == other->algorithm);
          REQUIRE(one->parameters.chunk == other->parameters.chunk);
        }
}

TEST_CASE("an algorithm that nobody has measured is not chosen, but runs where it is forced") {
  Algorithm cheap = *algorithm_named("direct");
  cheap.name = "cheap";
  cheap.cost_of_several = [](const Problem&, const Parameters&, const CostModel&) { return 0.0; };
  const Problem problem{.collective = Collective::all_gather, .ranks = 4, .count = 1000};
  for (const bool measured : {false, true}) {
    cheap.measured = measured;
    const Algorithm rows[] = {*algorithm_named("ring"), cheap, *algorithm_named("bruck")};
    const auto name = [&](std::string_view forced) {
      return choose(problem, CostModel(), forced, {}, nullptr, rows)->algorithm->name;
    };
    CHECK((name("") == "cheap") == measured);
    CHECK(name("cheap") == "cheap");
  }
}

TEST_CASE("what is predicted is the rank's own call") {
  const Problem broadcast{.collective = Collective::broadcast, .ranks = 4, .count = 1 << 20};
  const double in_place = chosen(broadcast, CostModel(), true, "direct")->predicted_us;
  CHECK(in_place < chosen(broadcast, CostModel(), false, "direct")->predicted_us);
}

TEST_CASE("without measured times, what is fastest in place is chosen") {
  const CostModel model;
  for (int which = 0; which < collective_count; ++which) {
    const auto collective = static_cast<Collective>(which);
    CHECK(chosen_in_place(collective, nullptr) == may_be_in_place(collective));
    for (std::size_t count = 1; count <= std::size_t{4} << 20; count = 3 * count + 1) {
      const Problem problem{.collective = collective, .ranks = 2, .count = count};
      const auto best = chosen(problem, model, may_be_in_place(collective));
      REQUIRE(best.ok());
      for (const Algorithm& algorithm : algorithms())
        if (serves(algorithm, problem))
          CHECK(best->predicted_us <=
                chosen(problem, model, may_be_in_place(collective), algorithm.name)->predicted_us);
    }
  }
  // Out of place too, where the root's copy would speak for another.
  const Problem broadcast{.collective = Collective::broadcast, .ranks = 2, .count = 1024};
  CHECK(chosen(broadcast, model, false)->algorithm->name == "direct");
}

TEST_CASE("a radix is that of the forced algorithm, and no larger than there are ranks") {
  const Problem problem{.collective = Collective::broadcast, .ranks = 8, .count = 100};
  const auto radix = [&](std::string_view forced, int asked) {
    return choose(problem, CostModel(), forced, {.radix = asked})->parameters.radix;
  };
  CHECK(radix("knomial", 5) == 5);
  CHECK(radix("knomial", 1 << 20) == 8);
  CHECK(radix("", 5) == choose(problem, CostModel())->parameters.radix);
}

TEST_CASE("a topology is searched only for what may be chosen") {
  static int searches;
  searches = 0;
  Algorithm searching = *algorithm_named("ring");
  searching.name = "searching";
  searching.measured = false;
  searching.finds = [](const Problem&, Paths&) { return ++searches > 0; };
  const Algorithm rows[] = {searching, *algorithm_named("one_shot")};
  CostModel model;
  Topology pair;
  pair.connect(pair.add(VertexKind::gpu, "a"), pair.add(VertexKind::gpu, "b"), LinkKind::nvlink, {1, 0});
  model.paths = std::make_shared<Paths>(pair, std::vector{0, 1});
  const Problem problem{.collective = Collective::all_reduce, .ranks = 2, .count = 100};
  CHECK(choose(problem, model, "", {}, nullptr, rows)->algorithm->name == "one_shot");
  CHECK(choose(problem, model, "one_shot", {}, nullptr, rows)->algorithm->name == "one_shot");
  CHECK(searches == 0);
  CHECK(choose(problem, model, "searching", {}, nullptr, rows)->algorithm->name == "searching");
  CHECK(searches == 1);
}
