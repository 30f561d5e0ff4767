// Which simulations are refused: those of more steps than anybody waits for, counted as messages.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "api/address_limit.h"
#include "topology/presets.h"
#include "transport/child.h"
#include "tuning/prediction/prediction.h"
#include "tuning/prediction/step_limits.h"

namespace paceline {
namespace {

Result<Answer> answer_of(Collective collective, std::string algorithm, int ranks, std::vector<std::size_t> sizes,
                         std::map<int, double> slow_gpus = {}) {
  Question question;
  question.collective = collective;
  question.algorithm = std::move(algorithm);
  question.sizes = std::move(sizes);
  question.gpus.resize(static_cast<std::size_t>(ranks));
  std::iota(question.gpus.begin(), question.gpus.end(), 0);
  question.machine = typical_machine();
  question.machine.slow_gpus = std::move(slow_gpus);
  return predict(*preset("rx2", ranks), question);
}

// With a straggler, so that no node stands for the others.
Result<Answer> answer_of(std::string algorithm, int ranks) {
  return answer_of(Collective::all_reduce, std::move(algorithm), ranks, {1 << 20}, {{3, 2}});
}

bool is_left_out(const Answer& answer, std::string_view line) {
  return std::ranges::find(answer.left_out, line) != answer.left_out.end();
}

void check_count_of_steps(std::string_view name, Collective collective, int ranks, std::size_t chunk) {
  INFO(name, " ", title(collective), " on ", ranks, " ranks, chunk ", chunk);
  const Problem problem{
      .collective = collective, .ranks = ranks, .count = 1000, .in_place = may_be_in_place(collective)};
  const Algorithm& algorithm = *algorithm_named(name);
  Parameters parameters = algorithm.parameters(problem, {});
  parameters.chunk = chunk;
  Schedule schedule(problem, parameters);
  algorithm.write(schedule);
  std::size_t steps = 0;
  for (int rank = 0; rank < ranks; ++rank) steps += schedule.steps(rank).size();
  CHECK(steps_of(algorithm, problem, parameters, {}) == doctest::Approx(static_cast<double>(steps)).epsilon(1e-3));
}

}  // namespace

TEST_CASE("where a root has most of the steps, all ranks' steps are counted exactly") {
  using enum Collective;
  for (const auto& [name, collective] : {std::pair{"direct", broadcast},
                                         {"direct", reduce},
                                         {"direct", gather},
                                         {"direct", scatter},
                                         {"fan_out", broadcast},
                                         {"chain", broadcast},
                                         {"pipelined_chain", broadcast},
                                         {"pipelined_chain", reduce},
                                         {"knomial", broadcast},
                                         {"knomial", reduce}})
    for (const int ranks : {2, 3, 8, 200})
      for (const std::size_t chunk : {300, 1 << 30}) check_count_of_steps(name, collective, ranks, chunk);
}

TEST_CASE("a direct broadcast to 8,192 ranks has a step for each message's end") {
  const auto answer = answer_of(Collective::broadcast, "direct", 8192, {8});
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  CHECK(answer->rows[0].method == "simulated");
  const Problem problem{.collective = Collective::broadcast, .ranks = 8192, .count = 2};
  CHECK(steps_of(*algorithm_named("direct"), problem, {.chunk = 2}, {}) == doctest::Approx(16382));
}

TEST_CASE("a ring of 800 ranks with a straggler is simulated if it is asked for by name") {
  const auto answer = answer_of("ring", 800);
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  CHECK(answer->rows[0].method == "simulated");
  CHECK(answer->rows[0].time_us > 2 * 799 * 2.5);
}

TEST_CASE("Rabenseifner's messages of many parts are one step each") {
  for (const int ranks : {1024, 4096}) {
    const auto answer = answer_of("rabenseifner", ranks);
    REQUIRE_MESSAGE(answer.ok(), answer.status().message());
    CHECK(answer->rows[0].method == "simulated");
  }
}

TEST_CASE("a ring of too many ranks is refused") {
  CHECK(answer_of("ring", 5000).status().message().ends_with("steps are too many to simulate"));
}

TEST_CASE("of all algorithms, exchanges of 1,300 ranks with all others are left out") {
  const auto answer = answer_of("all", 1300);
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  CHECK(is_left_out(*answer, "one_shot: its 1688700 connections take long to simulate; ask for it by name"));
  CHECK(std::ranges::none_of(answer->rows, [](const Prediction& row) { return row.algorithm == "one_shot"; }));
}

TEST_CASE("exchanges of 2,400 ranks with all others are refused, though they have few steps: connections take memory") {
  CHECK(answer_of("one_shot", 2400).status().message() ==
        "one_shot: its 5757600 connections and 4800 steps take too much memory to simulate");
}

TEST_CASE("exchanges of 4,096 ranks with all others are refused before their schedules fill the memory") {
  Child child([] {
    if (!testing::limit_addresses(std::size_t{256} << 20)) return false;
    const auto answer = answer_of(Collective::all_to_all, "pairwise", 4096, {1 << 20});
    return answer.status().message() ==
           "pairwise: its 16773120 connections and 33546240 steps take too much memory to simulate";
  });
  CHECK(child.ended_well());
}

TEST_CASE("steps that are too many for all algorithms at once, but not by name, are left out with that advice") {
  const auto answer = answer_of(Collective::all_to_all, "all", 1300, {1 << 10});
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  CHECK(is_left_out(*answer, "pairwise: 3377400 steps are too many to simulate; ask for it by name"));
  CHECK_FALSE(answer_of(Collective::all_to_all, "pairwise", 5000, {1 << 10}).status().message().ends_with("by name"));
}

TEST_CASE("that a problem has too many steps is not found out again for those with more elements and chunks") {
  static int written;
  Algorithm counted = *algorithm_named("pairwise");
  counted.write_for_several = [](Schedule& schedule) {
    ++written;
    algorithm_named("pairwise")->write(schedule);
  };
  Efforts efforts;
  const auto written_for = [&](std::string_view name, std::size_t count, std::size_t chunk) {
    written = 0;
    const Problem problem{.collective = Collective::all_to_all, .ranks = 1300, .count = count};
    const Effort effort = efforts.of(counted, name, problem, {.chunk = chunk}, {}, 4);
    if (too_many_steps(effort, false).empty()) return 0;
    efforts.was_too_much(name, problem, chunk, effort);
    return written;
  };
  const int first = written_for("pairwise", 1000, 100);
  CHECK(first > 0);
  CHECK(written_for("pairwise", 1000, 100) == 0);
  CHECK(written_for("pairwise", 8000, 800) == 0);
  CHECK(written_for("pairwise", 8000, 100) == 0);
  CHECK(written_for("pairwise", 8000, 1000) == first);  // fewer chunks
  CHECK(written_for("pairwise", 900, 90) == first);     // fewer elements
  CHECK(written_for("other", 1000, 100) == first);
}

TEST_CASE("longer chunks than an algorithm's own are told, and by name only what takes minutes gets them") {
  const auto row = [](const std::string& algorithm) {
    const auto answer = answer_of(Collective::broadcast, algorithm, 700, {32 << 20});
    REQUIRE_MESSAGE(answer.ok(), answer.status().message());
    const auto chain = std::ranges::find(answer->rows, "pipelined_chain", &Prediction::algorithm);
    REQUIRE(chain != answer->rows.end());
    return *chain;
  };
  const Prediction own = row("pipelined_chain");
  const Prediction beside_others = row("all");
  CHECK(own.own_chunk_bytes == 0);
  CHECK(beside_others.own_chunk_bytes == own.chunk_bytes);
  CHECK(beside_others.chunk_bytes > own.chunk_bytes);
  CHECK(beside_others.time_us > own.time_us);
}

TEST_CASE("short chunks of a few ranks are refused before their schedules fill the memory") {
  Child child([] {
    if (!testing::limit_addresses(std::size_t{256} << 20)) return false;
    Question question;
    question.collective = Collective::broadcast;
    question.algorithm = "direct";
    question.sizes = {128 << 20};
    question.chunk_bytes = 4;
    question.gpus = {0, 1};
    question.machine = typical_machine();
    return predict(*preset("k80-node"), question).status().message().ends_with("steps are too many to simulate");
  });
  CHECK(child.ended_well());
}

}  // namespace paceline
