#include "base/streaming.h"

#include <emmintrin.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace paceline {
namespace {

constexpr std::size_t line = 64;

}  // namespace

// Four vectors of the baseline fill a line, which leaves the CPU whole: wider ones gain nothing.
void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes) {
  const std::size_t head = std::min(bytes, -reinterpret_cast<std::uintptr_t>(target) % line);
  std::memcpy(target, source, head);
  std::size_t i = head;
  for (; i + line <= bytes; i += line) {
    const auto* from = reinterpret_cast<const __m128i*>(source + i);
    auto* to = reinterpret_cast<__m128i*>(target + i);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  std::memcpy(target + i, source + i, bytes - i);
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

std::size_t streaming_from() {
  static const std::size_t from = [] {
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return 2 * (cache > 0 ? static_cast<std::size_t>(cache) : std::size_t{1} << 20);
  }();
  return from;
}

}  // namespace paceline
