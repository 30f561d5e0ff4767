#include "base/call.h"

#include <fmt/format.h>

#include "base/hash.h"

namespace paceline {
namespace {

constexpr int count_bits = 48;
constexpr std::uint64_t count_mask = (std::uint64_t{1} << count_bits) - 1;

constexpr std::uint32_t field(std::uint32_t what, int shift, std::uint32_t mask) { return (what >> shift) & mask; }

// In the place of an operation, which an all-gather has not.
constexpr std::uint32_t mark_of(Serves what) { return 16 - static_cast<std::uint32_t>(what); }
static_assert(operation_count <= mark_of(Serves::first_gpu_call));

// What it serves but the user, as sentences have it; empty: none.
std::string_view service(const Call& call) {
  if (collective_of(call) != Collective::all_gather) return {};
  const std::uint32_t mark = field(call.what, 8, 15);
  if (mark == mark_of(Serves::split)) return "split";
  if (mark == mark_of(Serves::first_gpu_call)) return "first call on GPU memory";
  return {};
}

}  // namespace

std::uint16_t way_of(std::string_view algorithm, std::size_t chunk_bytes, int radix) {
  // The radix first: what is added last has not reached the upper bits.
  std::uint64_t hash = radix > 0 ? add_to_hash(empty_hash, static_cast<std::uint64_t>(radix)) : empty_hash;
  hash = add_to_hash(hash, algorithm);
  for (int shift = 0; shift < 64; shift += 8) hash = add_to_hash(hash, chunk_bytes >> shift & 0xff);
  return static_cast<std::uint16_t>(hash >> 48);
}

std::uint64_t with_way(std::uint64_t count, std::uint16_t way) {
  return (count & count_mask) | std::uint64_t{way} << count_bits;
}

Call make_call(Collective which, DataType type, Operation op, int root, std::uint64_t count, std::uint32_t sequence,
               std::uint16_t way) {
  if (which == Collective::recv) which = Collective::send;
  const std::uint32_t what = static_cast<std::uint32_t>(which) | static_cast<std::uint32_t>(type) << 4 |
                             static_cast<std::uint32_t>(op) << 8 | static_cast<std::uint32_t>(root) << 12;
  return {sequence, what, with_way(count, way)};
}

Call serving(Call all_gather, Serves what) {
  if (what != Serves::user) all_gather.what |= mark_of(what) << 8;
  return all_gather;
}

Collective collective_of(const Call& call) { return static_cast<Collective>(field(call.what, 0, 15)); }

int root_of(const Call& call) { return static_cast<int>(field(call.what, 12, 0xfffff)); }

bool is_collective(const Call& call) { return collective_of(call) < Collective::send; }

std::string_view title(const Call& call) {
  if (const std::string_view served = service(call); !served.empty()) return served;
  const Collective which = collective_of(call);
  return which == Collective::send ? "send/receive" : title(which);
}

bool same_but_for_way(const Call& a, const Call& b) {
  return a.sequence == b.sequence && a.what == b.what && ((a.size ^ b.size) & count_mask) == 0;
}

std::string describe(const Call& call) {
  if (const std::string_view served = service(call); !served.empty())
    return fmt::format("{} #{}", served, call.sequence);
  const auto which = field(call.what, 0, 15);
  const auto type = field(call.what, 4, 15);
  const auto op = field(call.what, 8, 15);
  if (which > static_cast<std::uint32_t>(Collective::recv) || type >= data_type_count || op >= operation_count)
    return fmt::format("an unknown call {:#x}", call.what);
  const auto collective = static_cast<Collective>(which);
  std::string text = fmt::format("{} #{}", title(call), call.sequence);
  if (collective == Collective::barrier) return text;
  text += fmt::format(" of {} {}", call.size & count_mask, name(static_cast<DataType>(type)));
  if (reduces(collective)) text += fmt::format(", {}", name(static_cast<Operation>(op)));
  if (is_rooted(collective)) text += fmt::format(", root {}", root_of(call));
  return text;
}

}  // namespace paceline
