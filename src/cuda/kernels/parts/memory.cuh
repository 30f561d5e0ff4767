// The user's memory, at any address: loads and stores of a few bytes, of which the last ones may be missing; and what
// becomes of an element before it is given (scaled) and after it was folded (finished).
#pragma once

#include "cuda/calls/task.h"
#include "cuda/kernels/parts/fold.cuh"
#include "cuda/kernels/parts/twos.cuh"
#include "cuda/kernels/parts/uneven.cuh"

namespace paceline::cuda {

// What few calls need is kept out of line: an instruction that is not in the cache costs more than the memory.

// Up to 8 bytes of a piece, at any address.
__device__ __noinline__ inline uint2 load_bytes(const std::byte* from, std::uint64_t left) {
  if (left >= 4 && reinterpret_cast<std::uintptr_t>(from) % 4 == 0) {
    const std::uint32_t first = *reinterpret_cast<const std::uint32_t*>(from);
    if (left == 4) return {first, 0};
    if (left >= 8) return {first, *reinterpret_cast<const std::uint32_t*>(from + 4)};
  }
  std::uint64_t bits = 0;
#pragma unroll 1
  for (int i = 0; i < 8 && i < left; ++i) bits |= static_cast<std::uint64_t>(from[i]) << i * 8;
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
}
__device__ __noinline__ inline void store_bytes(std::byte* to, uint2 value, std::uint64_t left) {
  if (left >= 4 && reinterpret_cast<std::uintptr_t>(to) % 4 == 0) {
    *reinterpret_cast<std::uint32_t*>(to) = value.x;
    if (left >= 8) *reinterpret_cast<std::uint32_t*>(to + 4) = value.y;
    if (left == 4 || left >= 8) return;
  }
  const std::uint64_t bits = static_cast<std::uint64_t>(value.x) | static_cast<std::uint64_t>(value.y) << 32;
#pragma unroll 1
  for (int i = 0; i < 8 && i < left; ++i) to[i] = static_cast<std::byte>(bits >> i * 8);
}
__device__ inline uint2 load_8(const std::byte* from, std::uint64_t left, bool aligned) {
  return aligned && left >= 8 ? *reinterpret_cast<const uint2*>(from) : load_bytes(from, left);
}
__device__ inline void store_8(std::byte* to, uint2 value, std::uint64_t left, bool aligned) {
  if (aligned && left >= 8)
    *reinterpret_cast<uint2*>(to) = value;
  else
    store_bytes(to, value, left);
}

__device__ inline std::uint64_t bits_of(uint2 word) {
  return static_cast<std::uint64_t>(word.x) | static_cast<std::uint64_t>(word.y) << 32;
}
__device__ inline uint2 word_of(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
}
// Up to 16 bytes. alignment: what the address is a multiple of: 16, 8, 4 or 1.
__device__ __noinline__ inline ulonglong2 load_halves(const std::byte* from, std::uint64_t left, int alignment) {
  const std::uint64_t first = bits_of(load_8(from, left, alignment >= 8));
  return {first, left > 8 ? bits_of(load_8(from + 8, left - 8, alignment >= 8)) : 0};
}
__device__ __noinline__ inline void store_halves(std::byte* to, ulonglong2 pair, std::uint64_t left, int alignment) {
  store_8(to, word_of(pair.x), left, alignment >= 8);
  if (left > 8) store_8(to + 8, word_of(pair.y), left - 8, alignment >= 8);
}
// One or two words are what the shortest messages have: a call would be half of their time, and so would a jump to a
// place far from here.
__device__ inline ulonglong2 load_pair(const std::byte* from, std::uint64_t left, int alignment) {
  if (left >= 16 && alignment == 16) return *reinterpret_cast<const ulonglong2*>(from);
  if (left == 8 && alignment >= 8) return {*reinterpret_cast<const std::uint64_t*>(from), 0};
  if (left == 4 && alignment >= 4) return {*reinterpret_cast<const std::uint32_t*>(from), 0};
  return load_halves(from, left, alignment);
}
__device__ inline void store_pair(std::byte* to, ulonglong2 pair, std::uint64_t left, int alignment) {
  const bool whole = left >= 16 && alignment == 16;
  const bool half = left == 8 && alignment >= 8;
  const bool quarter = left == 4 && alignment >= 4;
  if (whole) *reinterpret_cast<ulonglong2*>(to) = pair;
  if (half) *reinterpret_cast<std::uint64_t*>(to) = pair.x;
  if (quarter) *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(pair.x);
  if (!whole && !half && !quarter) store_halves(to, pair, left, alignment);
}

// The same in a long message, of which hardly a pair is at an edge. before: bytes of it that lie before the pair.
__device__ inline ulonglong2 load_inner(const std::byte* from, std::uint64_t before, std::uint64_t left,
                                        const Terms& terms) {
  if (terms.alignment == 16 && left >= 16) [[likely]]
    return *reinterpret_cast<const ulonglong2*>(from);
  if (before < 16 || left < 32) return load_halves(from, left, terms.alignment);
  const auto shift = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) % 16);
  const auto* const granules = reinterpret_cast<const ulonglong2*>(from - shift);
  return shifted(granules[0], granules[1], shift);  // a call would wait for what it loads
}
// What is not read again soon, so that the window stays in the L2 cache, and not this.
__device__ inline void store_first_out(std::byte* to, ulonglong2 pair) {
  __stcs(reinterpret_cast<ulonglong2*>(to), pair);
}
__device__ inline void store_whole(std::byte* to, ulonglong2 pair, std::uint64_t left, const Terms& terms) {
  if (terms.alignment == 16 && left >= 16) [[likely]]
    store_first_out(to, pair);
  else
    store_halves(to, pair, left, terms.alignment);
}

template <class Element, class Vector>
__device__ __noinline__ Vector multiplied_one_by_one(const Terms& terms, Vector vector) {
  typename Element::Factor factor;
  memcpy(&factor, terms.factor, sizeof factor);
  auto row = Row<Element, Vector>::load(vector);
  row.scale(factor);
  return row.store();
}
// What becomes a row next: a NaN is any.
template <class Element, class Vector>
__device__ Vector shrunk(const Terms& terms, Vector vector, float factor) {
  std::uint32_t words[sizeof(Vector) / 4];
  memcpy(words, &vector, sizeof vector);
  if (!Twos<Element>::shrink(words, factor)) return multiplied_one_by_one<Element>(terms, vector);
  memcpy(&vector, words, sizeof vector);
  return vector;
}
template <class Element, class Vector>
__device__ Vector multiplied(const Terms& terms, Vector vector) {
  if constexpr (Twos<Element>::shrinks) {
    float factor;
    memcpy(&factor, terms.factor, sizeof factor);
    if (only_shrinks(factor)) return shrunk<Element>(terms, vector, factor);
  }
  return multiplied_one_by_one<Element>(terms, vector);
}
template <class Element, class Vector>
__device__ Vector scaled(const Terms& terms, Vector vector) {
  return terms.scales ? multiplied<Element>(terms, vector) : vector;
}

template <class Element, class Vector>
__device__ __noinline__ Vector quotient(Vector vector, int divisor) {
  auto row = Row<Element, Vector>::load(vector);
  row.divide(divisor);
  return row.store();
}
// A fold's result as it is stored.
template <class Element, class Vector>
__device__ Vector finished(const Terms& terms, const Row<Element, Vector>& folded) {
  const Vector vector = folded.store();
  return terms.divides != 0 ? quotient<Element>(vector, terms.divides) : vector;
}

}  // namespace paceline::cuda
