#include "tuning/gpu_table.h"

#include <algorithm>

namespace paceline {
namespace {

constexpr std::array names{"brief", "wide", "streaming", "large"};

constexpr std::uint64_t kilo = 1 << 10;
constexpr std::uint64_t mega = 1 << 20;

// FNV-1a.
std::uint64_t add(std::uint64_t digest, std::uint64_t value) { return (digest ^ value) * 0x100000001b3U; }
constexpr std::uint64_t no_digest = 0xcbf29ce484222325U;

std::uint64_t add(std::uint64_t digest, const GpuWay& way) {
  // In an order in which ways that are one call's have marks of their own.
  for (const std::uint64_t value : {std::uint64_t{way.engines}, static_cast<std::uint64_t>(way.family),
                                    std::uint64_t{way.two_steps}, std::uint64_t{way.direct}, std::uint64_t{way.pushed},
                                    std::uint64_t{way.lanes}, std::uint64_t{way.blocks}, std::uint64_t{way.chunk}})
    digest = add(digest, value);
  return digest;
}

// From which size on the users' buffers are faster than the window. Where each rank has a part, all of them together
// have 12 MB, or 3 MB with more than two ranks.
std::uint64_t direct_from(Collective which, int ranks) {
  const bool many = ranks > 2;
  switch (which) {
    case Collective::broadcast: return (many ? 8 : 20) * mega;
    case Collective::all_reduce:
    case Collective::reduce: return (many ? 4 : 12) * mega;
    default: return (many ? 3 : 12) * mega / static_cast<unsigned>(ranks);
  }
}

// And from which size on the copy engines are, of two ranks. Where both give and take, they win less.
std::uint64_t engines_from(Collective which) {
  return (which == Collective::all_gather || which == Collective::all_to_all ? 160 : 40) * mega;
}
bool only_moves(Collective which) { return !reduces(which) && which != Collective::barrier; }

// Rows that ascend, from a size on direct, pushed or by engines: the row that it falls into is cut in two.
void change_from(std::vector<GpuRow>& rows, std::uint64_t from, bool GpuWay::*what) {
  const auto behind = std::ranges::find_if(rows, [&](const GpuRow& row) { return row.from >= from; });
  const GpuRow cut = *(behind - 1);
  const bool begins = behind != rows.end() && behind->from == from;
  const auto first = begins ? behind : rows.insert(behind, {cut.collective, from, cut.way});
  for (GpuRow& row : std::span(first, rows.end())) row.way.*what = true;
}

}  // namespace

std::string_view name(GpuFamily family) { return names[static_cast<std::size_t>(family)]; }

std::uint8_t mark(const GpuWay& way) {
  // Fields that differ in few bits differ in the topmost eight.
  return static_cast<std::uint8_t>(add(no_digest, way) * 0x9e3779b97f4a7c15U >> 56);
}

GpuTable GpuTable::rules(int ranks) {
  // By strips up to here; and parts that are passed on, of more than two ranks, from here.
  constexpr std::uint64_t strips_to = 8 * mega;
  constexpr std::uint64_t parts_from = 192 * kilo;
  constexpr std::uint64_t pushed_from = 192 * mega;  // an all-reduce of two ranks; below, multiprocessors count more
  const bool many = ranks > 2;
  const auto parts = static_cast<unsigned>(ranks);
  GpuTable table;
  for (const Collective which :
       {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
        Collective::reduce_scatter, Collective::gather, Collective::scatter, Collective::all_to_all}) {
    const bool in_parts =
        many && (which == Collective::all_reduce || which == Collective::reduce || which == Collective::broadcast);
    std::vector<GpuRow>& rows = table.rows_[static_cast<std::size_t>(which)];
    rows.push_back({which, 0, {}});
    if (in_parts) rows.push_back({which, parts_from, {.family = GpuFamily::wide, .two_steps = true}});
    // A long broadcast is relayed strip by strip, as far as they reach; of a reduce in chunks there is one step.
    if (which == Collective::all_reduce && many)
      rows.push_back({which, strips_to * parts + 1, {.family = GpuFamily::large, .two_steps = true}});
    else if (!(which == Collective::broadcast && many))
      rows.push_back({which, strips_to + 1, {.family = GpuFamily::large}});
    change_from(rows, direct_from(which, ranks), &GpuWay::direct);
    if (which == Collective::all_reduce && !many) change_from(rows, pushed_from, &GpuWay::pushed);
    if (only_moves(which) && !many) change_from(rows, engines_from(which), &GpuWay::engines);
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
  std::uint64_t digest = no_digest;
  for (const auto& rows : rows_)
    for (const GpuRow& row : rows)
      digest = add(add(add(digest, static_cast<std::uint64_t>(row.collective)), row.from), row.way);
  return digest;
}

}  // namespace paceline
