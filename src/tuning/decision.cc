#include "tuning/decision.h"

#include <algorithm>

#include "algorithms/chunks.h"
#include "base/configuration.h"

namespace paceline {
namespace {

// CostModel::common_share of what few ranks read in one place and copy past a shared cache that is far
// (StreamingFrom::early): with what others cost, broadcasts of 5 and 20 MB on 3 and 4 ranks would go by algorithms that
// take 1.2 to 1.55 times as long.
constexpr double common_share_past_cache = 0.6;

// Bytes that a rank reads of another's memory at once: 8 MB each way between two ranks take 648 us so, 675 in pieces of
// 128 KiB.
constexpr std::size_t longest_read = 1 << 20;

// Whether ranks of one node should read each other's memory, unless PACELINE_SINGLE_COPY says it.
//
// Where one rank's staging would serve all others, each of them reads for itself, all at the same time if they have
// CPUs; and ranks that exchange long blocks save a copy, where the kernel copies well. Elsewhere staging is faster:
// both sides copy at the same time, and no pages are pinned.
bool worth_single_copy(const Problem& problem, std::size_t element_bytes, bool oversubscribed) {
  if (configuration().single_copy == "on") return true;
  const std::size_t block = problem.count * element_bytes;
  const std::size_t all = static_cast<std::size_t>(problem.ranks) * block;
  switch (problem.collective) {
    case Collective::scatter:
      return block >= 256 << 10 && all >= 2 << 20 && !((oversubscribed || problem.ranks == 2) && rep_movs_is_slow());
    case Collective::all_to_all:
      if (rep_movs_is_slow()) return false;
      if (problem.ranks == 2) return all >= 1 << 20;
      // What is beyond the caches is staged past them.
      return oversubscribed ? all >= 512 << 10 && all <= 8 << 20 : all >= 1 << 20 && all <= 16 << 20;
    default: return false;
  }
}

}  // namespace

Result<Decision> decide(const Problem& problem, const CostModel& model, const Means& means, const NamedVariant& forced,
                        const Tuned* tuned) {
  const bool untuned_node = tuned == nullptr && !means.several_nodes;
  CostModel its = model;
  if (untuned_node && means.streaming_from.early &&
      output_elements(problem, problem.root) * model.element >= means.streaming_from.copies)
    its.common_share = std::min(its.common_share, common_share_past_cache);
  const auto reads_in_place = [&](Protocol protocol) {
    if (!means.single_copy || protocol == Protocol::staged) return false;
    return protocol == Protocol::single_copy || worth_single_copy(problem, model.element, means.oversubscribed);
  };
  const Protocol asked = forced.variant.protocol;
  std::string_view algorithm = forced.algorithm;
  // Who reads its part for itself gains nothing by a tree, whose inner ranks read others' parts as well.
  if (algorithm.empty() && untuned_node && problem.collective == Collective::scatter && reads_in_place(asked))
    algorithm = "direct";
  auto choice = choose(problem, its, algorithm, forced.variant, tuned);
  if (!choice.ok()) return choice.status();
  const bool single_copy = reads_in_place(asked != Protocol::automatic ? asked : choice->variant.protocol);
  const auto gives_only_inputs = choice->algorithm->gives_only_inputs;
  // Nodes may not agree on what is read where it lies.
  if (single_copy && !means.several_nodes && choice->variant.chunk == 0 && gives_only_inputs != nullptr &&
      gives_only_inputs(problem))
    choice->parameters.chunk = longest_read / model.element;
  const std::size_t chunk = std::min(choice->parameters.chunk, std::max<std::size_t>(1, problem.count));
  return Decision{std::move(*choice), chunk * model.element, single_copy};
}

std::size_t message_chunk(std::size_t count, const CostModel& model, bool same_node) {
  // In shared memory a chunk should leave room in the first-level cache beside its copy, or else be well beyond it: 64
  // KB from one CPU of an EPYC to another take 2.8 us in chunks of 8 KiB, 3.8 in chunks of 15 and 3.3 in chunks of 32.
  constexpr std::size_t within = 8 << 10;
  constexpr std::size_t beyond = 32 << 10;
  const std::size_t bytes = pipeline_chunk(count, 1, model) * model.element;
  return std::min(same_node && bytes < beyond ? std::min(bytes, within) : bytes, count * model.element);
}

}  // namespace paceline
