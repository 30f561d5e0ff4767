// Which simulations are refused: those of more steps than anybody waits for, counted as messages.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "api/address_limit.h"
#include "topology/presets.h"
#include "transport/child.h"
#include "tuning/predictor.h"

namespace paceline {
namespace {

// With a straggler, so that no node stands for the others.
Result<Answer> answer_of(std::string algorithm, int ranks) {
  Question question;
  question.algorithm = std::move(algorithm);
  question.sizes = {1 << 20};
  question.gpus.resize(static_cast<std::size_t>(ranks));
  std::iota(question.gpus.begin(), question.gpus.end(), 0);
  question.machine = typical_machine();
  question.machine.slow_gpus[3] = 2;
  return predict(*preset("rx2", ranks), question);
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
  Question question;
  question.collective = Collective::broadcast;
  question.algorithm = "direct";
  question.sizes = {8};
  question.gpus.resize(8192);
  std::iota(question.gpus.begin(), question.gpus.end(), 0);
  question.machine = typical_machine();
  const auto answer = predict(*preset("rx2", 8192), question);
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
  CHECK(std::ranges::find(answer->left_out,
                          "one_shot: its 1688700 connections take long to simulate; ask for it by name") !=
        answer->left_out.end());
  CHECK(std::ranges::none_of(answer->rows, [](const Prediction& row) { return row.algorithm == "one_shot"; }));
}

TEST_CASE("exchanges of 2,400 ranks with all others are refused, though they have few steps: connections take memory") {
  CHECK(answer_of("one_shot", 2400).status().message() ==
        "one_shot: its 5757600 connections and 4800 steps take too much memory to simulate");
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
