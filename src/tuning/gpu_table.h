// How GPUs run a collective, by its size: what is launched (cuda/calls/exchange.h), not what it computes.
//
// A table is a fact that all ranks share, like the algorithm table's costs: with the same table they launch alike
// without a word. It says what is fastest; what is possible the engine knows, so that no table can make a call wrong.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace paceline {

// Short messages: a strip for each warp; a few, which may be relayed; many, in rounds; or in rounds of twice as many,
// if nothing is folded or relayed. A family without room for a message means the next one. And long messages, in
// chunks.
enum class GpuFamily : std::uint8_t { brief, wide, streaming, deep, large };
std::string_view name(GpuFamily family);

// Whether parts of a message may be folded, or taken from the root, and passed on; in the other collectives each rank
// has a part of its own.
bool goes_in_parts(Collective which);

struct GpuWay {
  GpuFamily family = GpuFamily::brief;
  // In parts that are passed on; else all give all. Of what goes in parts, with more than two ranks.
  bool two_steps = false;
  // In the users' buffers where all ranks see them (cuda/calls/direct.h); the rest is for where they do not.
  bool direct = false;
  // Of what is folded directly: the ranks push it to who folds it; else that one loads it.
  bool pushed = false;
  // Of what is folded directly: the sums go from rank to rank. Where they are wider than the type that is not possible,
  // and they are pushed or loaded.
  bool passed = false;
  // Of what is only moved directly: by the copy engines where a graph holds the call (cuda/calls/engine_copies.h).
  bool engines = false;
  // Of short messages: strips that a block moves side by side. 0: as the size asks for; so are the two below.
  std::uint8_t lanes = 0;
  std::uint8_t blocks = 0;  // at most
  std::uint32_t chunk = 0;  // bytes, of long messages

  bool operator==(const GpuWay&) const = default;
};

// A number that ways which launch differently do not have in common, but by chance: 8 bits.
std::uint8_t mark(const GpuWay& way);

// From `from` bytes of the call's count on.
struct GpuRow {
  Collective collective = Collective::all_reduce;
  std::uint64_t from = 0;
  GpuWay way;

  bool operator==(const GpuRow&) const = default;
};

class GpuTable {
 public:
  // What was found on two and on four H200 by hand (docs/notes/gpu.md): for GPUs and numbers of ranks without a table.
  static GpuTable rules(int ranks);

  // These rows for the collectives that they are about. A collective's rows ascend, and the first is from 0.
  void replace(std::span<const GpuRow> rows);
  // bytes: of the call's count. Touches nothing but the table.
  [[nodiscard]] GpuWay way(Collective which, std::uint64_t bytes) const;
  [[nodiscard]] std::vector<GpuRow> rows() const;
  // The same for the same rows.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  std::array<std::vector<GpuRow>, collective_count> rows_;
};

}  // namespace paceline
