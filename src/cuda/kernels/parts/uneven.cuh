// Where a long collective's stretches lie (direct.h): even, at multiples of 16 bytes, or uneven, beginning and ending
// at any byte, since parts of any length follow each other and buffers begin anywhere.
//
// A thread moves granules: 16 bytes at a multiple of 16. A warp has rows of 32 of the output. In an input the same
// bytes may lie otherwise, as far for all threads: then each gets from the next one what it lacks of its granule.
// Only a granule at an edge goes byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline::cuda {

using Granule = ulonglong2;
inline constexpr std::uint64_t row_bytes = 32 * sizeof(Granule);

struct EvenPlaces {
  static constexpr bool is_even = true;
  static constexpr std::uint64_t most_before = 0;

  __device__ explicit EvenPlaces(const std::byte*) {}

  // at: of this thread's first granule. `rows` rows of what begins there and has so many bytes.
  template <int rows>
  __device__ void load(const std::byte* from, std::uint64_t bytes, std::uint64_t at, Granule (&granules)[rows]) const {
#pragma unroll
    for (int u = 0; u < rows; ++u)
      if (at + u * row_bytes < bytes) granules[u] = *reinterpret_cast<const Granule*>(from + at + u * row_bytes);
  }
  template <int rows>
  __device__ void store(std::byte* to, std::uint64_t bytes, std::uint64_t at, const Granule (&granules)[rows]) const {
#pragma unroll
    for (int u = 0; u < rows; ++u)
      if (at + u * row_bytes < bytes) *reinterpret_cast<Granule*>(to + at + u * row_bytes) = granules[u];
  }
};

// A stretch in some memory.
struct Run {
  std::byte* begin;
  std::byte* end;
  [[nodiscard]] __device__ bool has(const std::byte* from, std::uint64_t bytes) const {
    return from >= begin && from + bytes <= end;
  }
  [[nodiscard]] __device__ bool has_some_of(const std::byte* granule) const {
    return granule + sizeof(Granule) > begin && granule < end;
  }
  [[nodiscard]] __device__ bool has_byte(const std::byte* byte) const { return byte >= begin && byte < end; }
};
// Its bytes of a granule; the others are 0. All are on their way at once.
__device__ __noinline__ inline Granule load_edge(const Run& run, const std::byte* granule) {
  std::uint64_t bytes[sizeof(Granule)];
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(Granule)); ++i)
    bytes[i] = run.has_byte(granule + i) ? static_cast<std::uint64_t>(granule[i]) : 0;
  Granule value{0, 0};
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(Granule)); ++i) (i < 8 ? value.x : value.y) |= bytes[i] << i % 8 * 8;
  return value;
}
__device__ __noinline__ inline void store_edge(const Run& run, std::byte* granule, Granule value) {
#pragma unroll 1
  for (int i = 0; i < static_cast<int>(sizeof(Granule)); ++i)
    if (run.has_byte(granule + i)) granule[i] = static_cast<std::byte>((i < 8 ? value.x : value.y) >> i % 8 * 8);
}

// Of two granules in a row the 16 bytes from `shift` on.
__device__ inline Granule shifted(const Granule& first, const Granule& second, unsigned shift) {
  const bool far = shift >= 8;
  const std::uint64_t words[3] = {far ? first.y : first.x, far ? second.x : first.y, far ? second.y : second.x};
  const unsigned bits = shift % 8 * 8;
  const auto join = [bits](std::uint64_t low, std::uint64_t high) { return low >> bits | high << 1 << (63 - bits); };
  return {join(words[0], words[1]), join(words[1], words[2])};
}

class UnevenPlaces {
 public:
  static constexpr bool is_even = false;
  static constexpr std::uint64_t most_before = sizeof(Granule) - 1;

  // to: where the stretch begins in an output; in all of them as far from a multiple of 16.
  __device__ explicit UnevenPlaces(const std::byte* to) : before_(before(to)) {}

  // As above, but rows begin with the granule in which the output begins. All threads of a warp call it.
  template <int rows>
  __device__ void load(const std::byte* from, std::uint64_t bytes, std::uint64_t at, Granule (&granules)[rows]) const {
    const Run run{const_cast<std::byte*>(from), const_cast<std::byte*>(from) + bytes};
    const auto shift = static_cast<unsigned>(before(from + at - before_));
    const std::byte* const first = from + at - before_ - shift;
    Granule behind{0, 0};
    if (run.has(of_warp(first), rows * row_bytes + sizeof(Granule)))
      load_rows<true>(run, first, shift, granules, behind);
    else
      load_rows<false>(run, first, shift, granules, behind);
    if (shift == 0) return;
#pragma unroll
    for (int u = 0; u < rows; ++u) {
      // The last thread's next granule is the first thread's of the next row.
      const Granule shown = thread() != 0 ? granules[u] : u + 1 < rows ? granules[u + 1] : behind;
      const unsigned next = (thread() + 1) % 32;
      const Granule second{__shfl_sync(~0u, shown.x, next), __shfl_sync(~0u, shown.y, next)};
      granules[u] = shifted(granules[u], second, shift);
    }
  }
  template <int rows>
  __device__ void store(std::byte* to, std::uint64_t bytes, std::uint64_t at, const Granule (&granules)[rows]) const {
    const Run run{to, to + bytes};
    std::byte* const first = to + at - before_;
    if (run.has(of_warp(first), rows * row_bytes))
      store_rows<true>(run, first, granules);
    else
      store_rows<false>(run, first, granules);
  }

 private:
  [[nodiscard]] __device__ static unsigned thread() { return threadIdx.x % 32; }
  [[nodiscard]] __device__ static std::uint64_t before(const std::byte* address) {
    return reinterpret_cast<std::uintptr_t>(address) % sizeof(Granule);
  }
  // The first of a warp's granules, by a thread's.
  [[nodiscard]] __device__ static const std::byte* of_warp(const std::byte* granule) {
    return granule - thread() * sizeof(Granule);
  }
  // inside: the run has all of them. behind: the granule behind the rows, the first thread's.
  template <bool inside>
  static __device__ Granule load_granule(const Run& run, const std::byte* granule) {
    if (inside || run.has(granule, sizeof(Granule))) return *reinterpret_cast<const Granule*>(granule);
    return run.has_some_of(granule) ? load_edge(run, granule) : Granule{0, 0};
  }
  template <bool inside, int rows>
  static __device__ void load_rows(const Run& run, const std::byte* first, unsigned shift, Granule (&granules)[rows],
                                   Granule& behind) {
#pragma unroll
    for (int u = 0; u < rows; ++u) granules[u] = load_granule<inside>(run, first + u * row_bytes);
    if (shift != 0 && thread() == 0) behind = load_granule<inside>(run, first + rows * row_bytes);
  }
  template <bool inside, int rows>
  static __device__ void store_rows(const Run& run, std::byte* first, const Granule (&granules)[rows]) {
#pragma unroll
    for (int u = 0; u < rows; ++u) {
      std::byte* const granule = first + u * row_bytes;
      if (inside || run.has(granule, sizeof(Granule)))
        *reinterpret_cast<Granule*>(granule) = granules[u];
      else if (run.has_some_of(granule))
        store_edge(run, granule, granules[u]);
    }
  }

  const std::uint64_t before_;  // bytes of the first granule that are not the output's
};

}  // namespace paceline::cuda
