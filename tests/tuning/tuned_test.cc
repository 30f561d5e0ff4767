#include "tuning/tuned.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tuning/choice.h"

namespace paceline {
namespace {

const Algorithm* const ring = algorithm_named("ring");
const Algorithm* const one_shot = algorithm_named("one_shot");
const Algorithm* const doubling = algorithm_named("recursive_doubling");

Problem all_reduce(int ranks, std::size_t bytes) { return {Collective::all_reduce, ranks, 0, bytes / 4, false}; }

double formula(const Algorithm& algorithm, int ranks, std::size_t bytes, const CostModel& model) {
  const Problem problem = all_reduce(ranks, bytes);
  return algorithm.cost(problem, algorithm.parameters(problem, model), model);
}

// `algorithm` took `factor` times what the formula says, at two sizes.
Setting setting_of(int ranks, double factor, double start, const Algorithm& algorithm = *ring) {
  Setting setting;
  setting.transport = "shm";
  setting.ranks = ranks;
  setting.model.start = start;
  setting.curves.push_back({Collective::all_reduce, &algorithm, {}});
  for (const std::size_t bytes : {std::size_t{1024}, std::size_t{1} << 20})
    setting.curves[0].points.push_back({bytes, factor * formula(algorithm, ranks, bytes, setting.model)});
  return setting;
}

}  // namespace

TEST_CASE("a prediction is the formula's, times what was measured over it") {
  const Profile profile{"", "", {setting_of(4, 1.5, 1)}};
  const auto tuned = Tuned::of(profile, "shm", 4);
  REQUIRE(tuned != nullptr);
  for (const std::size_t bytes : {8, 1024, 4096, 1 << 20, 1 << 24})
    CHECK(tuned->correction(*ring, all_reduce(4, bytes), bytes) == doctest::Approx(1.5));
  CHECK(tuned->correction(*one_shot, all_reduce(4, 1024), 1024) == 1);
  CHECK(tuned->model(CostModel()).start == 1);
}

TEST_CASE("many ranks on each CPU pass messages on for nothing, two on each do not") {
  Setting setting = setting_of(4, 1.5, 20);
  for (const auto& [sharing, passing_share] : {std::pair(4, 0), std::pair(2, 1)}) {
    setting.model.sharing = sharing;
    const auto tuned = Tuned::of({"", "", {setting}}, "shm", 4);
    REQUIRE(tuned != nullptr);
    CHECK(tuned->model(CostModel()).passing_share == passing_share);
  }
}

TEST_CASE("at a size that was measured the prediction is what was measured, over any transport") {
  for (const std::string_view transport : {"shm", "tcp"}) {
    Setting setting = setting_of(4, 1.5, 20);
    setting.transport = transport;
    for (Point& point : setting.curves[0].points) point.us = static_cast<double>(point.bytes) / 100;
    const auto tuned = Tuned::of({"", "", {setting}}, transport, 4);
    REQUIRE(tuned != nullptr);
    const CostModel model = tuned->model(CostModel());
    CHECK(model.passing_share == (transport == "shm" ? CostModel().passing_share : 1));
    CHECK(model.common_share == (transport == "shm" ? CostModel().common_share : 0));
    for (const Point& point : setting.curves[0].points) {
      const double correction = tuned->correction(*ring, all_reduce(4, point.bytes), point.bytes);
      CHECK(correction * formula(*ring, 4, point.bytes, model) == doctest::Approx(point.us));
    }
  }
}

TEST_CASE("between two numbers of ranks constants and corrections are interpolated by their logarithms") {
  const Profile profile{"", "", {setting_of(2, 1, 1), setting_of(8, 4, 9)}};
  const auto tuned = Tuned::of(profile, "shm", 4);
  REQUIRE(tuned != nullptr);
  CHECK(tuned->model(CostModel()).start == doctest::Approx(3));
  CHECK(tuned->correction(*ring, all_reduce(4, 4096), 4096) == doctest::Approx(2));
}

TEST_CASE("where a power of two of the ranks do the work, what was measured with so many ranks counts") {
  const auto correction = [](const Setting& low, const Setting& high, int ranks) {
    const auto tuned = Tuned::of({"", "", {low, high}}, "shm", ranks);
    return tuned->correction(*doubling, all_reduce(ranks, 4096), 4096);
  };
  const Setting two = setting_of(2, 1, 1, *doubling);
  const Setting four = setting_of(4, 1, 1, *doubling);
  const Setting six = setting_of(6, 3, 1, *doubling);
  const Setting eight = setting_of(8, 4, 1, *doubling);
  CHECK(correction(four, eight, 7) == doctest::Approx(1));
  CHECK(correction(two, eight, 7) == doctest::Approx(2));
  CHECK(correction(six, eight, 7) == doctest::Approx(3));
  CHECK(correction(four, eight, 8) == doctest::Approx(4));
}

TEST_CASE("measured calls of 0 and of 1 byte have no sizes between them") {
  Setting setting = setting_of(2, 3, 1);
  auto& points = setting.curves[0].points;
  points.insert(points.begin(), {{0, 1.0}, {1, 2.0}});
  const auto tuned = Tuned::of({"", "", {setting}}, "shm", 2);
  for (const std::size_t bytes : {0, 1, 2, 1024})
    CHECK(std::isfinite(tuned->correction(*ring, all_reduce(2, bytes), bytes)));
  CHECK(tuned->correction(*ring, all_reduce(2, 1024), 1024) == doctest::Approx(3));
}

TEST_CASE("beyond the numbers of ranks measured the nearest counts") {
  const Profile profile{"", "", {setting_of(2, 1, 1), setting_of(8, 4, 9)}};
  CHECK(Tuned::of(profile, "shm", 16)->correction(*ring, all_reduce(16, 4096), 4096) == doctest::Approx(4));
  CHECK(Tuned::of(profile, "shm", 16)->model(CostModel()).start == 9);
}

TEST_CASE("a transport that was not measured has nothing") {
  CHECK(Tuned::of({"", "", {setting_of(2, 1, 1)}}, "tcp", 2) == nullptr);
  CHECK(Tuned::of({}, "shm", 2) == nullptr);
}

TEST_CASE("the table goes before costs, for the ranks that it was measured with") {
  Setting setting = setting_of(4, 1, 1);
  setting.table = {{Collective::all_reduce, 0, 4096, ring}, {Collective::all_reduce, 4096, SIZE_MAX, one_shot}};
  const Profile profile{"", "", {setting}};
  const auto chosen = [&](int ranks, std::size_t bytes, std::string_view forced) {
    const auto tuned = Tuned::of(profile, "shm", ranks);
    const auto choice = choose(all_reduce(ranks, bytes), tuned->model(CostModel()), forced, {}, tuned.get());
    REQUIRE(choice.ok());
    return choice->algorithm;
  };
  CHECK(chosen(4, 4092, "") == ring);
  CHECK(chosen(4, 4096, "") == one_shot);
  CHECK(chosen(4, 4096, "two_shot") == algorithm_named("two_shot"));
  CHECK(Tuned::of(profile, "shm", 5)->fastest(all_reduce(5, 8), 8) == nullptr);
}

TEST_CASE("the table's chunk and protocol are the choice's, unless a chunk is asked for") {
  Setting setting = setting_of(4, 1, 1);
  setting.table = {{Collective::all_reduce, 0, SIZE_MAX, ring, {.chunk = 4096, .protocol = Protocol::single_copy}}};
  const auto tuned = Tuned::of({"", "", {setting}}, "shm", 4);
  const auto chosen = choose(all_reduce(4, 1 << 20), tuned->model(CostModel()), "", {}, tuned.get());
  CHECK(chosen->parameters.chunk == 1024);
  CHECK(chosen->variant.protocol == Protocol::single_copy);
  const auto asked = choose(all_reduce(4, 1 << 20), tuned->model(CostModel()), "", {.chunk = 8192}, tuned.get());
  CHECK(asked->parameters.chunk == 2048);
  const auto forced = choose(all_reduce(4, 1 << 20), tuned->model(CostModel()), "ring", {}, tuned.get());
  CHECK(forced->parameters.chunk > 2048);
  CHECK(forced->variant.protocol == Protocol::automatic);
}

TEST_CASE("of a way to run that was measured the prediction is what was measured") {
  for (const Variant& way : {Variant{.radix = 4}, Variant{.chunk = 4096}, Variant{.chunk = 1 << 30}}) {
    Setting setting = setting_of(8, 1, 1);
    setting.curves.push_back(
        {Collective::broadcast, algorithm_named("knomial"), {{4096, 12.0}, {1 << 20, 345.0}}, way});
    const auto tuned = Tuned::of({"", "", {setting}}, "shm", 8);
    const Problem broadcast{Collective::broadcast, 8, 0, (1 << 20) / 4, false};
    const auto forced = choose(broadcast, tuned->model(CostModel()), "knomial", way, tuned.get());
    CHECK(forced->predicted_us == doctest::Approx(345));
  }
}

TEST_CASE("what was not measured is not preferred to what was, however slow, unless it is asked for") {
  const std::size_t bytes = 1024;
  const auto tuned = Tuned::of({"", "", {setting_of(4, 100, 1), setting_of(8, 100, 1)}}, "shm", 6);
  REQUIRE(tuned != nullptr);
  const CostModel model = tuned->model(CostModel());
  REQUIRE(choose(all_reduce(6, bytes), model, "")->algorithm != ring);
  CHECK(choose(all_reduce(6, bytes), model, "", {}, tuned.get())->algorithm == ring);
  CHECK(choose(all_reduce(6, bytes), model, "one_shot", {}, tuned.get())->algorithm == one_shot);
  // Of other collectives nothing was measured.
  const Problem gathered{Collective::all_gather, 6, 0, bytes / 4, false};
  CHECK(choose(gathered, model, "", {}, tuned.get())->algorithm == choose(gathered, model, "")->algorithm);
}

TEST_CASE("what was measured with one of two numbers of ranks is corrected by that") {
  const auto correction = [](const Setting& low, const Setting& high) {
    return Tuned::of({"", "", {low, high}}, "shm", 4)->correction(*ring, all_reduce(4, 4096), 4096);
  };
  CHECK(correction(setting_of(2, 4, 1), setting_of(8, 9, 1, *one_shot)) == doctest::Approx(4));
  CHECK(correction(setting_of(2, 9, 1, *one_shot), setting_of(8, 4, 1)) == doctest::Approx(4));
}

TEST_CASE("a setting of nodes with as many ranks is for them alone") {
  Setting setting = setting_of(4, 1, 7);
  setting.model.node_ranks = 2;
  setting.model.cable = 300;
  setting.model.stream = 200;
  const Profile profile{"", "", {setting}};
  CHECK(Tuned::of(profile, "shm", 4) == nullptr);
  CHECK(Tuned::of(profile, "shm", 4, 4) == nullptr);
  const auto tuned = Tuned::of(profile, "shm", 4, 2);
  REQUIRE(tuned != nullptr);
  CostModel base;
  base.node_ranks = 2;
  CHECK(tuned->model(base).cable == 300);
  const auto read = read_setting(write_setting(setting));
  REQUIRE_MESSAGE(read.ok(), read.status().message());
  CHECK(read->model.node_ranks == 2);
  CHECK(read->model.cable == doctest::Approx(300));
}

TEST_CASE("what a turn costs is taken from ranks that shared CPUs alone") {
  Setting setting = setting_of(4, 1, 1);
  setting.model.switching = 0;
  CostModel base;
  base.sharing = 2;
  base.switching = 4;
  CHECK(Tuned::of({"", "", {setting}}, "shm", 4)->model(base).switching == 4);
  setting.model.sharing = 2;
  setting.model.switching = 3;
  CHECK(Tuned::of({"", "", {setting}}, "shm", 4)->model(base).switching == 3);
}

}  // namespace paceline
