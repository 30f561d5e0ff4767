// Slow GPUs and links are named by their numbers in the whole topology, whichever GPUs a collective is on.
#include <doctest/doctest.h>

#include <numeric>

#include "topology/presets.h"
#include "tuning/prediction/prediction.h"

namespace paceline {
namespace {

struct Asked {
  Collective collective = Collective::all_reduce;
  std::string algorithm;
  std::vector<int> gpus = {0, 1, 2, 3, 4, 5, 6, 7};
  std::size_t bytes = 64 << 20;
};

Topology dgx() { return *preset("dgx1-v100"); }

int link_between(const Topology& topology, std::string_view from, std::string_view to) {
  for (std::size_t l = 0; l < topology.links().size(); ++l) {
    const Link& link = topology.links()[l];
    if (topology.vertex(link.from).name == from && topology.vertex(link.to).name == to) return static_cast<int>(l);
  }
  FAIL("there is no such link");
  return -1;
}

double time_of(const Asked& asked, const std::map<int, double>& slow_gpus = {},
               const std::map<int, double>& slow_links = {}) {
  Question question;
  question.collective = asked.collective;
  question.algorithm = asked.algorithm;
  question.gpus = asked.gpus;
  question.sizes = {asked.bytes};
  question.machine = typical_machine();
  question.machine.slow_gpus = slow_gpus;
  question.machine.slow_links = slow_links;
  const auto answer = predict(dgx(), question);
  REQUIRE_MESSAGE(answer.ok(), answer.status().message());
  REQUIRE(answer->rows.size() == 1);
  return answer->rows[0].time_us;
}

const std::vector<Asked> of_the_topology{
    {.algorithm = "rings"},
    {.algorithm = "rings", .gpus = {4, 5, 6, 7}},
    {.collective = Collective::broadcast, .algorithm = "packed_trees"},
    {.collective = Collective::broadcast, .algorithm = "packed_trees", .gpus = {4, 5, 6, 7}},
    {.collective = Collective::all_gather, .algorithm = "packed_trees", .gpus = {4, 5, 6, 7}}};

}  // namespace

TEST_CASE("a slow link that a collective does not use changes nothing") {
  for (const Asked& asked : of_the_topology) {
    INFO(asked.algorithm, " on ", asked.gpus.size());
    CHECK(time_of(asked, {}, {{link_between(dgx(), "gpu0", "switch0"), 10}}) == time_of(asked));
  }
}

TEST_CASE("a slow link that a collective uses makes it slower") {
  for (const Asked& asked : of_the_topology) {
    INFO(asked.algorithm, " on ", asked.gpus.size());
    CHECK(time_of(asked, {}, {{link_between(dgx(), "gpu4", "gpu7"), 10}}) > 2 * time_of(asked));
  }
}

TEST_CASE("a slow GPU that takes no part changes nothing, and one that takes part does") {
  for (const Asked& asked : of_the_topology) {
    Asked few = asked;
    few.gpus = {4, 5, 6, 7};
    few.bytes = 64 << 10;
    INFO(few.algorithm);
    CHECK(time_of(few, {{0, 50}}) == time_of(few));
    CHECK(time_of(few, {{7, 50}}) > time_of(few));
  }
}

TEST_CASE("of NVSwitches that messages are spread over each slows them by what it carries") {
  const Topology machine = *preset("hgx-h200");
  const auto rate = [&](const std::map<int, double>& slow_links) {
    Question question;
    question.collective = Collective::broadcast;
    question.algorithm = "direct";
    question.chunk_bytes = 1 << 20;
    question.gpus = {0, 1};
    question.sizes = {1'000'000'000};
    question.machine.slow_links = slow_links;
    const auto answer = predict(machine, question);
    REQUIRE_MESSAGE(answer.ok(), answer.status().message());
    return answer->rows.at(0).busbw_gbs;
  };
  const int first = link_between(machine, "gpu0", "nvswitch0");
  const int second = link_between(machine, "gpu0", "nvswitch1");
  const int unused = link_between(machine, "nvswitch1", "gpu0");
  CHECK(rate({}) == doctest::Approx(450).epsilon(0.001));
  CHECK(rate({{unused, 10}}) == rate({}));
  CHECK(rate({{first, 10}}) == doctest::Approx(450 - 125 + 12.5).epsilon(0.001));
  CHECK(rate({{second, 10}}) == doctest::Approx(450 - 100 + 10).epsilon(0.001));
  CHECK(rate({{first, 10}, {second, 10}}) == doctest::Approx(450 - 225 + 22.5).epsilon(0.001));
}

TEST_CASE("formulas, which know no stragglers, are left out where there are some") {
  const Topology machine = *preset("rx2");
  Question question;
  question.gpus = {0, 1, 2, 3};
  question.sizes = {1 << 20};
  question.machine = typical_machine();
  const auto complaint = [&](Collective collective, const char* algorithm) {
    question.collective = collective;
    question.algorithm = algorithm;
    return predict(machine, question).status().message();
  };
  const auto check_that_all_are_left_out = [&] {
    CHECK(complaint(Collective::all_reduce, "reduction_server") ==
          "reduction_server: its formula knows no slow GPUs and links");
    CHECK(complaint(Collective::broadcast, "multicast") == "multicast: its formula knows no slow GPUs and links");
  };
  question.machine.slow_links = {{link_between(machine, "node3/nic0", "leaf0"), 10}};
  check_that_all_are_left_out();
  question.machine.slow_links.clear();
  question.machine.slow_gpus = {{3, 10}};
  check_that_all_are_left_out();

  question.sources = 2;
  question.algorithm = "all";
  const auto few = predict(machine, question);
  REQUIRE_MESSAGE(few.ok(), few.status().message());
  CHECK(few->rows.size() == 2);  // knomial and ring are simulated
  CHECK(few->left_out == std::vector<std::string>{"multicast: its formula knows no slow GPUs and links"});
}

TEST_CASE("links that the topology does not have cannot be slow") {
  const Topology machine = *preset("hgx-h200");
  Question question;
  question.algorithm = "ring";
  question.gpus = {0, 1};
  question.sizes = {8};
  for (const int link : {-1, static_cast<int>(machine.links().size())}) {
    question.machine.slow_links = {{link, 2}};
    CHECK(predict(machine, question).status().code() == Code::invalid_argument);
  }
  question.machine.slow_links = {{link_between(machine, "gpu0", "nvswitch1"), -1}};
  CHECK(predict(machine, question).status().message() ==
        "the link gpu0 -> nvswitch1 cannot take -1 times as long: a factor is from 1e-06 to 1000000");
}

}  // namespace paceline
