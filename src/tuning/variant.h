// How an algorithm is to run, beside what it chooses itself. As text, after the algorithm's name: "ring",
// "ring chunk=65536", "knomial radix=8", "direct protocol=single_copy".
//
// Channels are no part of it: how many a schedule has is the algorithm's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "algorithms/table.h"
#include "base/status.h"

namespace paceline {

// How long messages get to ranks of the same node.
enum class Protocol : std::uint8_t {
  automatic,   // as the communicator finds best
  staged,      // through shared memory
  single_copy  // read from the sender's memory, where the kernel lets the ranks
};
std::string_view name(Protocol protocol);

struct Variant {
  std::size_t chunk = 0;  // bytes, the longest; 0: the algorithm's own
  int radix = 0;          // Parameters::radix, of algorithms that have one; 0: the algorithm's own
  Protocol protocol = Protocol::automatic;

  bool operator==(const Variant&) const = default;
};

// What the algorithm runs with then.
Parameters parameters_of(const Algorithm& algorithm, const Problem& problem, const CostModel& model,
                         const Variant& variant);

struct NamedVariant {
  std::string algorithm;
  Variant variant;
};

// Errors (invalid_argument): anything but chunk=BYTES, radix=K and protocol=staged|single_copy after the name. The name
// may be of no algorithm.
Result<NamedVariant> read_variant(std::string_view text);
// The same of an algorithm in the table, with a radix only if it has one; or without a name. Errors (invalid_argument)
// say which algorithms there are.
Result<NamedVariant> known_variant(std::string_view text);

}  // namespace paceline
