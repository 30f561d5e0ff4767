#include "base/copies.h"

#include <cpuid.h>
#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "base/cpus.h"
#include "base/fork_hold.h"

namespace paceline {
namespace {

constexpr std::size_t line = 64;

// All but the whole lines of the target, and how long these are.
struct Whole {
  std::size_t begin = 0;
  std::size_t end = 0;
};

Whole copy_edges(std::byte* target, const std::byte* source, std::size_t bytes) {
  Whole whole;
  whole.begin = std::min(bytes, -reinterpret_cast<std::uintptr_t>(target) % line);
  whole.end = whole.begin + (bytes - whole.begin) / line * line;
  std::memcpy(target, source, whole.begin);
  std::memcpy(target + whole.end, source + whole.end, bytes - whole.end);
  return whole;
}

// Vectors of the baseline are a tenth slower.
[[gnu::target("avx2")]] void copy_by_avx2(std::byte* target, const std::byte* source, std::size_t bytes) {
  const Whole whole = copy_edges(target, source, bytes);
  for (std::size_t i = whole.begin; i < whole.end; i += line) {
    const auto* from = reinterpret_cast<const __m256i*>(source + i);
    auto* to = reinterpret_cast<__m256i*>(target + i);
    const __m256i a = _mm256_loadu_si256(from);
    const __m256i b = _mm256_loadu_si256(from + 1);
    _mm256_store_si256(to, a);
    _mm256_store_si256(to + 1, b);
  }
}

// A CPU fetches on by itself to the end of a page and no further. With several pages side by side, it fetches several
// times as much at once: on Intel's CPUs; on an EPYC sends of 1 to 64 MB take as long so.
constexpr std::size_t page = 4096;
constexpr std::size_t two_pages = 2 * page;

[[gnu::target("avx2")]] void copy_two_lines(std::byte* target, const std::byte* source) {
  const auto* from = reinterpret_cast<const __m256i*>(source);
  auto* to = reinterpret_cast<__m256i*>(target);
  const __m256i a = _mm256_loadu_si256(from);
  const __m256i b = _mm256_loadu_si256(from + 1);
  const __m256i c = _mm256_loadu_si256(from + 2);
  const __m256i d = _mm256_loadu_si256(from + 3);
  _mm256_storeu_si256(to, a);
  _mm256_storeu_si256(to + 1, b);
  _mm256_storeu_si256(to + 2, c);
  _mm256_storeu_si256(to + 3, d);
}

// Lines are taken over so far ahead of where they are copied; a half and four times as far do the same.
constexpr std::size_t ahead = 512;

// Asks for the lines from `begin` to `end` of each of so many pages side by side, for writing.
template <std::size_t pages>
[[gnu::target("prfchw"), gnu::always_inline]] inline void take_over(const std::byte* source, std::size_t begin,
                                                                    std::size_t end) {
  for (std::size_t i = begin; i < end; i += line)
    for (std::size_t beside = 0; beside < pages * page; beside += page) __builtin_prefetch(source + i + beside, 1);
}

// As many whole groups of so many pages as there are; returns their bytes.
template <std::size_t pages, Lines lines>
[[gnu::target("avx2,prfchw")]] std::size_t copy_pages(std::byte* target, const std::byte* source, std::size_t bytes) {
  const std::size_t end = bytes / (pages * page) * (pages * page);
  for (std::size_t at = 0; at < end; at += pages * page) {
    if constexpr (lines == Lines::taken) take_over<pages>(source + at, 0, ahead);
    for (std::size_t i = at; i < at + page; i += 2 * line) {
      if constexpr (lines == Lines::taken)
        if (i + ahead < at + page) take_over<pages>(source, i + ahead, i + ahead + 2 * line);
      for (std::size_t beside = 0; beside < pages * page; beside += page)
        copy_two_lines(target + i + beside, source + i + beside);
    }
  }
  return end;
}
// What makes no pair of pages.
template <Lines lines>
[[gnu::target("avx2,prfchw")]] void copy_rest(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::size_t at = 0;
  if (lines == Lines::taken && bytes > 0) {
    take_over<1>(source, 0, std::min(ahead, bytes));
    take_over<1>(source, bytes - 1, bytes);  // the last line, where the source begins within one
    for (; at + 2 * line <= bytes; at += 2 * line) {
      take_over<1>(source, at + ahead, std::min(at + ahead + 2 * line, bytes));
      copy_two_lines(target + at, source + at);
    }
  }
  std::memcpy(target + at, source + at, bytes - at);
}
// Half of the stores to a target that begins within a line would go to two lines.
template <Lines lines>
void copy_side_by_side(std::byte* target, const std::byte* source, std::size_t bytes) {
  std::size_t done = std::min(bytes, -reinterpret_cast<std::uintptr_t>(target) % line);
  std::memcpy(target, source, done);
  done += copy_pages<4, lines>(target + done, source + done, bytes - done);
  done += copy_pages<2, lines>(target + done, source + done, bytes - done);
  copy_rest<lines>(target + done, source + done, bytes - done);
}

// Four vectors of the baseline fill a line, which leaves the CPU whole: wider ones gain nothing.
void stream_line(std::byte* target, const std::byte* source) {
  const auto* from = reinterpret_cast<const __m128i*>(source);
  auto* to = reinterpret_cast<__m128i*>(target);
  const __m128i a = _mm_loadu_si128(from);
  const __m128i b = _mm_loadu_si128(from + 1);
  const __m128i c = _mm_loadu_si128(from + 2);
  const __m128i d = _mm_loadu_si128(from + 3);
  _mm_stream_si128(to, a);
  _mm_stream_si128(to + 1, b);
  _mm_stream_si128(to + 2, c);
  _mm_stream_si128(to + 3, d);
}
// Whole lines: pairs of pages side by side, and the rest.
template <Lines lines>
[[gnu::target("prfchw")]] void stream_pages(std::byte* target, const std::byte* source, std::size_t bytes) {
  const std::size_t pairs = bytes / two_pages * two_pages;
  for (std::size_t at = 0; at < pairs; at += two_pages) {
    if constexpr (lines == Lines::taken) take_over<2>(source + at, 0, ahead);
    for (std::size_t i = at; i < at + page; i += line) {
      if constexpr (lines == Lines::taken)
        if (i + ahead < at + page) take_over<2>(source, i + ahead, i + ahead + line);
      stream_line(target + i, source + i);
      stream_line(target + i + page, source + i + page);
    }
  }
  if constexpr (lines == Lines::taken) take_over<1>(source, pairs, std::min(pairs + ahead, bytes));
  for (std::size_t i = pairs; i < bytes; i += line) {
    if constexpr (lines == Lines::taken) take_over<1>(source, i + ahead, std::min(i + ahead + line, bytes));
    stream_line(target + i, source + i);
  }
}

// Found when the library is loaded: where it traps, cpuid takes tens of us, in which another thread may fork.
const bool is_emerald_rapids = [] {
  constexpr unsigned emerald_rapids = 0xc06f0;  // family 6, model 207, without the stepping
  unsigned version = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __builtin_cpu_is("intel") != 0 && __get_cpuid(1, &version, &b, &c, &d) != 0 &&
         (version & ~0xfU) == emerald_rapids;
}();

}  // namespace

bool rep_movs_is_slow() {
  static const bool slow = __builtin_cpu_is("amd") != 0;
  return slow;
}

bool shared_cache_is_far() { return is_emerald_rapids; }

void cached_copy(std::byte* target, const std::byte* source, std::size_t bytes, Lines lines) {
  // Shorter copies are not by `rep movs`.
  constexpr std::size_t rep_movs_from = 2048;
  constexpr std::size_t side_by_side_from = 12 << 10;  // shorter ones lose a little
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2 && rep_movs_is_slow() && bytes >= rep_movs_from)
    copy_by_avx2(target, source, bytes);
  else if (has_avx2 && !rep_movs_is_slow() && lines == Lines::taken)
    copy_side_by_side<Lines::taken>(target, source, bytes);
  else if (has_avx2 && !rep_movs_is_slow() && bytes >= side_by_side_from)
    copy_side_by_side<Lines::read>(target, source, bytes);
  else
    std::memcpy(target, source, bytes);
}

void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes, Lines lines) {
  const Whole whole = copy_edges(target, source, bytes);
  std::byte* const to = target + whole.begin;
  const std::byte* const from = source + whole.begin;
  const std::size_t length = whole.end - whole.begin;
  if (rep_movs_is_slow())
    for (std::size_t i = 0; i < length; i += line) stream_line(to + i, from + i);
  else if (lines == Lines::taken)
    stream_pages<Lines::taken>(to, from, length);
  else
    stream_pages<Lines::read>(to, from, length);
  _mm_sfence();
}

// Piece by piece through the first-level cache: the loops of every type and operation serve as they are.
void stream_fold(FoldFunction fold, std::byte* target, const std::byte* const* sources, std::size_t source_count,
                 std::size_t elements, std::size_t element_bytes) {
  constexpr std::size_t piece_bytes = 4096;
  constexpr std::size_t most_sources = 64;
  if (source_count > most_sources) return fold(target, sources, source_count, elements);
  alignas(line) std::array<std::byte, piece_bytes> piece;
  std::array<const std::byte*, most_sources> at{};
  const std::size_t longest = piece_bytes / element_bytes;
  for (std::size_t i = 0; i < elements; i += longest) {
    const std::size_t count = std::min(longest, elements - i);
    for (std::size_t s = 0; s < source_count; ++s) at[s] = sources[s] + i * element_bytes;
    fold(piece.data(), at.data(), source_count, count);
    stream_copy(target + i * element_bytes, piece.data(), count * element_bytes);
  }
}

namespace {

struct Caches {
  double own = 0;     // bytes
  double shared = 0;  // of it, one CPU's
};

// Finding them takes long enough for another thread to fork meanwhile, whose child would wait for them for ever.
std::mutex caches_mutex;
const HeldWhileForking<caches_mutex> held_while_forking;

Caches caches() {
  const std::lock_guard lock(caches_mutex);
  static const Caches found = [] {
    const long own = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return Caches{own > 0 ? static_cast<double>(own) : 1 << 20, static_cast<double>(shared_cache_of_one_cpu())};
  }();
  return found;
}

}  // namespace

StreamingFrom streaming_from(double sharing, double at_once) {
  // However large the cache is that a virtual CPU sees, others use it, too: beyond this nothing was gained (a Xeon's
  // 480 MiB for two CPUs).
  constexpr double most_for_copies = 52 << 20;
  constexpr double most_for_folds = 20 << 20;
  const auto [own, shared] = caches();
  constexpr double for_copies = 3.0 / 8;  // measured on 2 and 16 CPUs, EPYC and Xeon
  constexpr double few = 4;               // measured with two
  const bool is_far = shared_cache_is_far() && at_once <= few;
  const double copies = std::max(2 * own, for_copies * std::min(most_for_copies, shared) / sharing);
  const double folds = std::max(2 * own, std::min(most_for_folds, shared) / sharing);
  return {static_cast<std::size_t>(is_far ? own : copies), static_cast<std::size_t>(folds), is_far};
}

}  // namespace paceline
