#include "tuning/variant.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "base/listed.h"
#include "base/wrong.h"

namespace paceline {
namespace {

constexpr std::array names{"automatic", "staged", "single_copy"};

bool read_chunk(std::string_view text, std::size_t& chunk) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), chunk);
  return error == std::errc() && end == text.data() + text.size() && chunk > 0;
}

bool read_radix(std::string_view text, int& radix) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), radix);
  return error == std::errc() && end == text.data() + text.size() && radix >= 2;
}

bool read_protocol(std::string_view text, Protocol& protocol) {
  for (const Protocol one : {Protocol::staged, Protocol::single_copy}) {
    if (text != name(one)) continue;
    protocol = one;
    return true;
  }
  return false;
}

}  // namespace

std::string_view name(Protocol protocol) { return names[static_cast<std::size_t>(protocol)]; }

Parameters parameters_of(const Algorithm& algorithm, const Problem& problem, const CostModel& model,
                         const Variant& variant) {
  Parameters parameters = algorithm.parameters(problem, model);
  parameters.order = model.order;
  parameters.paths = model.paths;
  const std::size_t limit = variant.chunk == 0 ? model.largest_chunk : std::min(variant.chunk, model.largest_chunk);
  const std::size_t elements = std::max<std::size_t>(1, limit / model.element);
  parameters.chunk = variant.chunk == 0 ? std::min(parameters.chunk, elements) : elements;
  if (variant.radix > 0) parameters.radix = std::clamp(variant.radix, 2, std::max(2, problem.ranks));
  return parameters;
}

Result<NamedVariant> read_variant(std::string_view text) {
  constexpr std::string_view chunk = "chunk=";
  constexpr std::string_view radix = "radix=";
  constexpr std::string_view protocol = "protocol=";
  const auto next_word = [&] {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    return word;
  };
  NamedVariant read;
  read.algorithm = next_word();
  while (!text.empty()) {
    const std::string_view word = next_word();
    const bool good = word.starts_with(chunk)      ? read_chunk(word.substr(chunk.size()), read.variant.chunk)
                      : word.starts_with(radix)    ? read_radix(word.substr(radix.size()), read.variant.radix)
                      : word.starts_with(protocol) ? read_protocol(word.substr(protocol.size()), read.variant.protocol)
                                                   : false;
    if (!good)
      return Status(Code::invalid_argument,
                    fmt::format("'{}' after the algorithm {}: there are chunk=BYTES, radix=K (from 2), "
                                "protocol=staged and protocol=single_copy",
                                word, read.algorithm));
  }
  return read;
}

Result<NamedVariant> known_variant(std::string_view text) {
  auto read = read_variant(text);
  if (!read.ok() || read->algorithm.empty()) return read;
  const Algorithm* const named = algorithm_named(read->algorithm);
  if (named == nullptr) {
    std::vector<std::string_view> known;
    for (const Algorithm& algorithm : algorithms()) known.push_back(algorithm.name);
    return wrong(fmt::format("there is no algorithm '{}'; there are {}", read->algorithm, listed(known)));
  }
  if (read->variant.radix > 0) PACE_TRY(check_has_radix(*named));
  return read;
}

}  // namespace paceline
