#include "tuning/gpu_table.h"

#include <algorithm>

#include "base/hash.h"

namespace paceline {
namespace {

constexpr std::array names{"brief", "wide", "streaming", "deep", "large"};

constexpr std::uint64_t kilo = 1 << 10;
constexpr std::uint64_t mega = 1 << 20;

std::uint64_t add_way(std::uint64_t hash, const GpuWay& way) {
  // In an order in which ways that are one call's have marks of their own.
  for (const std::uint64_t value :
       {std::uint64_t{way.engines}, static_cast<std::uint64_t>(way.family), std::uint64_t{way.direct},
        std::uint64_t{way.pushed}, std::uint64_t{way.passed}, std::uint64_t{way.two_steps}, std::uint64_t{way.lanes},
        std::uint64_t{way.blocks}, std::uint64_t{way.chunk}})
    hash = add_to_hash(hash, value);
  return hash;
}

// From which size on the users' buffers are faster than the window, and, where they win at all, from which on copy
// engines are, what is pushed and what is passed on. Where each rank has a part: of all of them together.
constexpr std::uint64_t never = std::uint64_t{1} << 62;
struct Turns {
  std::uint64_t direct = never;
  std::uint64_t engines = never;
  std::uint64_t pushed = never;
  std::uint64_t passed = never;
};
Turns turns_of(Collective which, int ranks) {
  const bool many = ranks > 2;
  const std::uint64_t each = mega * static_cast<unsigned>(ranks);  // what goes round takes longer with more ranks
  switch (which) {
    case Collective::broadcast: return many ? Turns{.direct = 8 * mega} : Turns{20 * mega, 40 * mega};
    // Of two ranks multiprocessors count more below.
    case Collective::all_reduce:
      return many ? Turns{.direct = 4 * mega, .pushed = 20 * mega, .passed = 16 * each}
                  : Turns{.direct = 12 * mega, .passed = 192 * mega};
    case Collective::reduce:
      return many ? Turns{.direct = 4 * mega, .pushed = 80 * mega, .passed = each} : Turns{.direct = 12 * mega};
    case Collective::reduce_scatter:
      return many ? Turns{.direct = 3 * mega, .passed = 40 * each} : Turns{.direct = 12 * mega};
    case Collective::all_gather:
    case Collective::all_to_all: return {(many ? 3 : 12) * mega, 320 * mega};
    case Collective::gather: return {(many ? 3 : 12) * mega, (many ? 150 : 80) * mega};
    default: return {(many ? 3 : 12) * mega, 80 * mega};
  }
}
// From which size on they do, with more than two ranks. One step is faster as long as it has no rounds, if a root gives
// or gets all (four H200: a reduce of 256 KB 2.9 us, in two steps 5.0).
std::uint64_t parts_from(Collective which, int ranks) {
  constexpr std::uint64_t least = 192 * kilo;
  const std::uint64_t at_once = 768 * kilo / static_cast<unsigned>(ranks - 1);  // cuda/memory/window.h: wide_stride
  return which == Collective::all_reduce ? least : std::max(least, at_once + 1);
}

// Rows that ascend, from a size on direct, pushed, passed on or by engines: the row that it falls into is cut in two.
void change_from(std::vector<GpuRow>& rows, std::uint64_t from, bool GpuWay::*what) {
  const auto behind = std::ranges::find_if(rows, [&](const GpuRow& row) { return row.from >= from; });
  const GpuRow cut = *(behind - 1);
  const bool begins = behind != rows.end() && behind->from == from;
  const auto first = begins ? behind : rows.insert(behind, {cut.collective, from, cut.way});
  for (GpuRow& row : std::span(first, rows.end())) row.way.*what = true;
}

}  // namespace

bool goes_in_parts(Collective which) {
  return which == Collective::all_reduce || which == Collective::reduce || which == Collective::broadcast;
}

std::string_view name(GpuFamily family) { return names[static_cast<std::size_t>(family)]; }

std::uint8_t mark(const GpuWay& way) {
  // Fields that differ in few bits differ in the topmost eight.
  return static_cast<std::uint8_t>(add_way(empty_hash, way) * 0x9e3779b97f4a7c15U >> 56);
}

GpuTable GpuTable::rules(int ranks) {
  constexpr std::uint64_t strips_to = 8 * mega;
  const bool many = ranks > 2;
  const auto parts = static_cast<unsigned>(ranks);
  GpuTable table;
  for (const Collective which :
       {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
        Collective::reduce_scatter, Collective::gather, Collective::scatter, Collective::all_to_all}) {
    std::vector<GpuRow>& rows = table.rows_[static_cast<std::size_t>(which)];
    rows.push_back({which, 0, {}});
    if (many && goes_in_parts(which))
      rows.push_back({which, parts_from(which, ranks), {.family = GpuFamily::streaming, .two_steps = true}});
    // A long broadcast is relayed strip by strip, as far as they reach; of a reduce in chunks there is one step.
    if (which == Collective::all_reduce && many)
      rows.push_back({which, strips_to * parts + 1, {.family = GpuFamily::large, .two_steps = true}});
    else if (!(which == Collective::broadcast && many))
      rows.push_back({which, strips_to + 1, {.family = GpuFamily::large}});
    const Turns turns = turns_of(which, ranks);
    const std::uint64_t share = goes_in_parts(which) ? 1 : parts;
    for (const auto& [from, what] :
         {std::pair(turns.direct, &GpuWay::direct), std::pair(turns.pushed, &GpuWay::pushed),
          std::pair(turns.passed, &GpuWay::passed), std::pair(turns.engines, &GpuWay::engines)})
      if (from != never) change_from(rows, from / share, what);
  }
  return table;
}

void GpuTable::replace(std::span<const GpuRow> rows) {
  for (const GpuRow& row : rows) rows_[static_cast<std::size_t>(row.collective)].clear();
  for (const GpuRow& row : rows) rows_[static_cast<std::size_t>(row.collective)].push_back(row);
}

GpuWay GpuTable::way(Collective which, std::uint64_t bytes) const {
  GpuWay found;
  if (static_cast<int>(which) >= collective_count) return found;
  for (const GpuRow& row : rows_[static_cast<std::size_t>(which)]) {
    if (row.from > bytes) break;
    found = row.way;
  }
  return found;
}

std::vector<GpuRow> GpuTable::rows() const {
  std::vector<GpuRow> all;
  for (const auto& rows : rows_) all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

std::uint64_t GpuTable::digest() const {
  std::uint64_t digest = empty_hash;
  for (const auto& rows : rows_) {
    for (const GpuRow& row : rows) {
      digest = add_to_hash(digest, static_cast<std::uint64_t>(row.collective));
      digest = add_way(add_to_hash(digest, row.from), row.way);
    }
  }
  return digest;
}

}  // namespace paceline
