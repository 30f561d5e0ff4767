#include "algorithms/chunks.h"

namespace paceline {
namespace {

// Whole vectors where there are any.
std::size_t aligned(std::size_t elements) {
  return elements >= 64 ? elements / 64 * 64 : std::max<std::size_t>(elements, 1);
}

}  // namespace

std::size_t largest_chunk(const CostModel& model) {
  return aligned(model.largest_chunk / std::max<std::size_t>(model.element, 1));
}

std::size_t pipeline_chunk(std::size_t count, int hops, const CostModel& model) {
  // Ranks that take turns on a CPU do not overlap, so small chunks gain nothing.
  if (model.sharing > 1 && model.node_ranks == 1) return largest_chunk(model);
  const double bytes = static_cast<double>(count * model.element);
  // A single hop has two stages as well: its sender copies in what its receiver then copies out.
  const int stages = std::max(hops, 2);
  const double rate = std::min({model.bandwidth, model.cable, model.stream});
  // Copies go by pairs of pages (base/copies.h): over a single hop less is not worth a message of its own. Over several
  // a chunk below a page costs about its start-up, however short it is.
  constexpr double pages = 8192;
  const double least = hops == 1 ? pages : pages / 2;
  if (hops == 1 && bytes < 2 * least) return std::min(largest_chunk(model), std::max<std::size_t>(count, 1));
  const double best = std::max(least, std::sqrt(bytes * model.chunk_start * rate / (stages - 1)));
  const double whole = best >= pages ? std::round(best / pages) * pages : best;
  const double elements = whole / static_cast<double>(model.element);
  if (elements >= static_cast<double>(largest_chunk(model))) return largest_chunk(model);
  return aligned(static_cast<std::size_t>(elements));
}

Sizes::Sizes(const Problem& problem, const Parameters& parameters, const CostModel& model, int parts)
    : others(problem.ranks - 1),
      bytes(static_cast<double>(problem.count * model.element)),
      part(bytes / parts),
      chunk(std::min(part, static_cast<double>(parameters.chunk) * static_cast<double>(model.element))),
      chunks(chunk > 0 ? std::ceil(part / chunk) : 1),
      kept(problem.in_place ? 0 : bytes) {}

Parameters largest_chunks(const Problem&, const CostModel& model) { return {.chunk = largest_chunk(model)}; }

std::vector<Part> slices(std::size_t count, int parts, std::size_t chunk) {
  const auto n = static_cast<std::size_t>(parts);
  const std::size_t longest = chunk > count / n ? std::max<std::size_t>(count, 1) : chunk * n;
  std::vector<Part> result;
  for (std::size_t begin = 0; begin < count; begin += longest)
    result.push_back({begin, std::min(longest, count - begin)});
  return result;
}

}  // namespace paceline
