// Which simulations are refused: those of more steps than anybody waits for, counted as messages.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "api/address_limit.h"
#include "topology/presets.h"
#include "transport/child.h"
#include "tuning/prediction.h"

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

}  // namespace

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
