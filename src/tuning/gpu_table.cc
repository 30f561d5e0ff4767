#include "tuning/gpu_table.h"

namespace paceline {
namespace {

constexpr std::array names{"brief", "streaming", "large"};

constexpr std::uint64_t kilo = 1 << 10;
constexpr std::uint64_t mega = 1 << 20;

// FNV-1a.
std::uint64_t add(std::uint64_t digest, std::uint64_t value) { return (digest ^ value) * 0x100000001b3U; }
constexpr std::uint64_t no_digest = 0xcbf29ce484222325U;

std::uint64_t add(std::uint64_t digest, const GpuWay& way) {
  for (const std::uint64_t value :
       {static_cast<std::uint64_t>(way.family), std::uint64_t{way.two_steps}, std::uint64_t{way.direct},
        std::uint64_t{way.lanes}, std::uint64_t{way.blocks}, std::uint64_t{way.chunk}})
    digest = add(digest, value);
  return digest;
}

}  // namespace

std::string_view name(GpuFamily family) { return names[static_cast<std::size_t>(family)]; }

std::uint8_t mark(const GpuWay& way) {
  // Fields that differ in few bits differ in the topmost eight.
  return static_cast<std::uint8_t>(add(no_digest, way) * 0x9e3779b97f4a7c15U >> 56);
}

GpuTable GpuTable::rules(int ranks) {
  // A strip for each warp up to here; by strips at all.
  constexpr std::uint64_t brief_to = 512 * kilo;
  constexpr std::uint64_t strips_to = 8 * mega;
  // From here on more than two ranks fold or take parts and pass them on.
  constexpr std::uint64_t two_steps_from = 512 * kilo;
  const bool many = ranks > 2;
  const auto parts = static_cast<unsigned>(ranks);
  GpuTable table;
  for (int number = 0; number < collective_count; ++number) {
    const auto which = static_cast<Collective>(number);
    if (which == Collective::barrier) continue;
    const bool whole = which == Collective::all_reduce || which == Collective::reduce || which == Collective::broadcast;
    // Where all ranks' buffers together are so long; the buffer, of the three that are not made of parts.
    std::uint64_t direct_from = (many ? 3 : 12) * mega / (whole ? 1 : parts);
    if (whole) direct_from = (many ? 4 : 12) * mega;
    if (which == Collective::broadcast && many) direct_from = 12 * mega;
    // One way between two the window's streams are as fast, and spare the root its own copy.
    if (which == Collective::broadcast && !many) direct_from = UINT64_MAX;

    std::vector<GpuRow> rows{{which, 0, {}}};
    GpuWay way;
    way.family = GpuFamily::streaming;
    if (many && whole) {
      way.two_steps = true;
      rows.push_back({which, two_steps_from, way});
    } else {
      rows.push_back({which, brief_to + 1, way});
    }
    way.family = GpuFamily::large;
    if (many && which == Collective::all_reduce) {
      rows.push_back({which, strips_to * parts + 1, way});
    } else if (!many || which != Collective::broadcast) {  // else strips are relayed as far as they reach
      way.two_steps = false;
      rows.push_back({which, strips_to + 1, way});
    }
    // What begins behind direct_from is direct; what it falls into is cut in two.
    std::vector<GpuRow>& kept = table.rows_[static_cast<std::size_t>(number)];
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::uint64_t below = i + 1 < rows.size() ? rows[i + 1].from : UINT64_MAX;
      GpuRow row = rows[i];
      row.way.direct = row.from >= direct_from;
      kept.push_back(row);
      if (row.way.direct || below <= direct_from) continue;
      row.from = direct_from;
      row.way.direct = true;
      kept.push_back(row);
    }
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
