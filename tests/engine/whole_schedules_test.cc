// Schedules that come from a topology or a layout of nodes, run by the host engine on all ranks at once, over a
// transport that only hands messages over.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "algorithms/packed_trees.h"
#include "algorithms/table.h"
#include "algorithms/tree_timings.h"
#include "engine/fakes.h"
#include "topology/part.h"

namespace paceline {
namespace {

using Floats = std::vector<float>;

// The outputs of all ranks; inputs[r] is rank r's input. Out of place, float32, sum.
std::vector<Floats> outputs_of(Schedule& schedule, const std::vector<Floats>& inputs) {
  const int n = schedule.ranks();
  std::vector<std::unique_ptr<FakeRank>> ranks;
  std::vector<Plan> plans;
  std::vector<Floats> outputs;
  std::vector<Floats> scratch;
  std::vector<Execution> executions;
  for (int r = 0; r < n; ++r) {
    ranks.push_back(std::make_unique<FakeRank>(r, n));
    ranks.back()->wiring.routes.keeps_data[0] = true;  // until the message has been handed over
    ranks.back()->transport.left.emplace();
    plans.push_back(bind(schedule, ranks.back()->wiring.routes, DataType::float32, Operation::sum));
    outputs.emplace_back(output_elements(schedule.problem(), r), -1.0F);
    scratch.emplace_back(plans.back().scratch_bytes / 4);
    executions.emplace_back(ranks.back()->wiring);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Memory memory = memory_of(inputs[r], outputs[r]);
    memory.scratch = std::as_writable_bytes(std::span(scratch[r])).data();
    executions[r].add(plans[r], all_reduce(1), memory);
  }
  for (int done = 0, turns = 0; done < n; ++turns) {
    REQUIRE(turns < 100'000);
    done = 0;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const auto turn = executions[r].advance();
      REQUIRE(turn != Execution::Turn::failed);
      done += turn == Execution::Turn::done;
      FakeTransport& transport = ranks[r]->transport;
      for (const FakeTransport::Sent& sent : transport.sends) {
        for (const int to : sent.to)
          ranks[static_cast<std::size_t>(to)]->transport.deliver(sent.channel, static_cast<int>(r),
                                                                 {sent.data, sent.bytes}, sent.to_all);
        ++(*transport.left)[static_cast<std::size_t>(sent.channel)];
      }
      transport.sends.clear();
    }
  }
  return outputs;
}

// Element i of rank r: whole numbers, so that sums are exact.
std::vector<Floats> inputs_of(int ranks, std::size_t count) {
  std::vector<Floats> inputs(static_cast<std::size_t>(ranks), Floats(count));
  for (std::size_t r = 0; r < inputs.size(); ++r)
    for (std::size_t i = 0; i < count; ++i) inputs[r][i] = static_cast<float>((i * 7 + r * 31) % 101);
  return inputs;
}

}  // namespace

TEST_CASE("hierarchical schedules run on the host engine") {
  for (const auto& [n, node_ranks] : {std::pair{12, 4}, {8, 2}, {15, 3}, {6, 6}}) {
    INFO("ranks ", n, ", a node ", node_ranks);
    const std::size_t count = 1003;
    const auto inputs = inputs_of(n, count);
    const Parameters parameters{.chunk = 50, .node_ranks = node_ranks};
    Schedule reduction({.collective = Collective::all_reduce, .ranks = n, .count = count}, parameters);
    algorithm_named("hierarchical")->write(reduction);
    Floats sum(count);
    for (const Floats& input : inputs) std::transform(sum.begin(), sum.end(), input.begin(), sum.begin(), std::plus());
    for (const Floats& output : outputs_of(reduction, inputs)) CHECK(output == sum);
    Schedule broadcast({.collective = Collective::broadcast, .ranks = n, .root = 2, .count = count}, parameters);
    algorithm_named("hierarchical")->write(broadcast);
    for (const Floats& output : outputs_of(broadcast, inputs)) CHECK(output == inputs[2]);
    Schedule gather({.collective = Collective::all_gather, .ranks = n, .count = count}, parameters);
    algorithm_named("hierarchical")->write(gather);
    Floats all;
    for (const Floats& input : inputs) all.insert(all.end(), input.begin(), input.end());
    for (const Floats& output : outputs_of(gather, inputs)) CHECK(output == all);
    const std::size_t block = 57;
    const auto operands = inputs_of(n, block * static_cast<std::size_t>(n));
    Schedule scatter({.collective = Collective::reduce_scatter, .ranks = n, .count = block}, parameters);
    algorithm_named("hierarchical")->write(scatter);
    Floats folded(operands[0].size());
    for (const Floats& operand : operands)
      std::transform(folded.begin(), folded.end(), operand.begin(), folded.begin(), std::plus());
    const auto outputs = outputs_of(scatter, operands);
    for (std::size_t r = 0; r < outputs.size(); ++r)
      CHECK(std::equal(outputs[r].begin(), outputs[r].end(), folded.begin() + static_cast<std::ptrdiff_t>(r * block)));
  }
}

TEST_CASE("packed trees run on the host engine, whatever their timing") {
  const Topology topology = part("dgx1-v100");
  const auto trees = broadcast_trees(topology, 3);
  const auto forest = all_gather_trees(topology);
  for (const TreeTiming& timing : testing::every_tree_timing) {
    const std::size_t count = 700;
    const auto inputs = inputs_of(8, count);
    Schedule broadcast({.collective = Collective::broadcast, .ranks = 8, .root = 3, .count = count}, {.chunk = 20});
    REQUIRE(write_packed_trees(broadcast, *trees, timing).ok());
    for (const Floats& output : outputs_of(broadcast, inputs)) CHECK(output == inputs[3]);
    Schedule gather({.collective = Collective::all_gather, .ranks = 8, .count = count}, {.chunk = 20});
    REQUIRE(write_packed_trees(gather, *forest, timing).ok());
    Floats all;
    for (const Floats& input : inputs) all.insert(all.end(), input.begin(), input.end());
    for (const Floats& output : outputs_of(gather, inputs)) CHECK(output == all);
  }
}

TEST_CASE("reductions along packed trees run on the host engine, with odd sizes and whatever their timing") {
  for (const std::vector<int>& gpus : {std::vector{0, 1, 2, 3, 4, 5, 6, 7}, {0, 1, 4, 5}, {0, 1, 2, 3, 4}, {1, 3, 6}}) {
    const Topology topology = part("dgx1-v100", gpus);
    const int n = static_cast<int>(gpus.size());
    const auto scatter_trees = reduce_scatter_trees(topology);
    const auto both_trees = all_reduce_trees(topology);
    for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{701}}) {
      const auto inputs = inputs_of(n, count * gpus.size());
      Floats sum(inputs[0].size());
      for (const Floats& input : inputs)
        std::transform(sum.begin(), sum.end(), input.begin(), sum.begin(), std::plus());
      for (const TreeTiming& timing : testing::every_tree_timing) {
        INFO("ranks ", n, ", count ", count, ", slack ", timing.slack, ", overlaps ", timing.overlaps);
        Schedule scatter({.collective = Collective::reduce_scatter, .ranks = n, .count = count}, {.chunk = 20});
        REQUIRE(write_packed_trees(scatter, *scatter_trees, timing).ok());
        const auto blocks = outputs_of(scatter, inputs);
        for (std::size_t r = 0; r < blocks.size(); ++r)
          CHECK(std::equal(blocks[r].begin(), blocks[r].end(), sum.begin() + static_cast<std::ptrdiff_t>(r * count)));
        Schedule reduction({.collective = Collective::all_reduce, .ranks = n, .count = sum.size()}, {.chunk = 20});
        REQUIRE(write_packed_trees(reduction, *both_trees, timing).ok());
        for (const Floats& output : outputs_of(reduction, inputs)) CHECK(output == sum);
      }
    }
  }
}

}  // namespace paceline
