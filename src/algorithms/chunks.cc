#include "algorithms/chunks.h"

#include "base/rounding.h"

namespace paceline {
namespace {

// Whole vectors where there are any.
std::size_t aligned(std::size_t elements) {
  return elements >= 64 ? elements / 64 * 64 : std::max<std::size_t>(elements, 1);
}

// Copies go by pairs of pages (base/copies.h).
constexpr std::size_t pages = 8192;

std::size_t whole_pages(std::size_t bytes) { return rounded_up(bytes, pages); }

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
  // Over a single hop less than a pair of pages is not worth a message of its own. Over several a chunk below a page
  // costs about its start-up, however short it is.
  const double least = hops == 1 ? pages : pages / 2.0;
  if (hops == 1 && bytes < 2 * least) return std::min(largest_chunk(model), std::max<std::size_t>(count, 1));
  const double best = std::max(least, std::sqrt(bytes * model.chunk_start * rate / (stages - 1)));
  const double whole = best >= pages ? std::round(best / pages) * pages : best;
  const double elements = whole / static_cast<double>(model.element);
  if (elements >= static_cast<double>(largest_chunk(model))) return largest_chunk(model);
  return aligned(static_cast<std::size_t>(elements));
}

std::size_t fan_chunk(std::size_t count, int ranks, const CostModel& model) {
  const std::size_t chunk = pipeline_chunk(count, 1, model);
  if (ranks < 3 || !model.all_in_shared_memory()) return chunk;
  constexpr std::size_t enough = 32 << 10;
  const std::size_t half = std::min(enough, whole_pages(count * model.element / 2));
  return std::min(largest_chunk(model), std::max(chunk, half / model.element));
}

std::size_t exchange_chunk(std::size_t part, int ranks, const CostModel& model) {
  constexpr std::size_t at_once = 256 << 10;
  constexpr std::size_t most = 4 << 20;  // beyond nothing is gained
  const std::size_t row = static_cast<std::size_t>(ranks) * model.element;
  if (part > most / row || !model.all_in_shared_memory()) return largest_chunk(model);
  const std::size_t number = std::max<std::size_t>(1, (part * row + at_once / 2) / at_once);
  const std::size_t chunk = whole_pages(part * model.element / number) / model.element;
  return std::clamp<std::size_t>(chunk, 1, largest_chunk(model));
}

Sizes::Sizes(const Problem& problem, const Parameters& parameters, const CostModel& model, int parts)
    : others(problem.ranks - 1),
      bytes(static_cast<double>(problem.count * model.element)),
      part(bytes / parts),
      longest(static_cast<double>(parameters.chunk) * static_cast<double>(model.element)),
      chunk(std::min(part, longest)),
      chunks(chunks_of(part)),
      kept(problem.in_place ? 0 : bytes) {}

double Sizes::chunks_of(double length) const { return longest > 0 ? std::max(1.0, std::ceil(length / longest)) : 1; }

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
