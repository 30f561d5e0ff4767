// How the elements of each type come from memory into vector registers and go back: compiled once for each
// instruction set.
//
// A row type has `Number`, the type it is computed in; `bytes` of an element; `lanes`, the elements of a full vector;
// load<N> and store<N> of N <= lanes elements at any address. store rounds to the type and writes its one NaN for every
// NaN: which NaN an addition returns depends on the order that the compiler gives its operands.
#if defined(PACELINE_REDUCTION_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PACELINE_REDUCTION_LANES_INL_H_
#undef PACELINE_REDUCTION_LANES_INL_H_
#else
#define PACELINE_REDUCTION_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/float_formats.h"

HWY_BEFORE_NAMESPACE();
namespace paceline::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T, std::size_t N>
using Tag = hn::Simd<T, N, 0>;
template <class D>
using Vector = hn::VFromD<D>;
template <class D>
using Unsigned = hn::RebindToUnsigned<D>;

// Unsigned T, at any address.
template <std::size_t N, class T>
HWY_INLINE Vector<Tag<T, N>> load_bits(const std::byte* from, T) {
  const Tag<T, N> d;
  if constexpr (N == 1) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return hn::Set(d, value);
  } else {
    return hn::LoadU(d, reinterpret_cast<const T*>(from));
  }
}
template <std::size_t N, class T>
HWY_INLINE void store_bits(Vector<Tag<T, N>> v, std::byte* to, T) {
  const Tag<T, N> d;
  if constexpr (N == 1) {
    const T value = hn::GetLane(v);
    std::memcpy(to, &value, sizeof value);
  } else {
    hn::StoreU(v, d, reinterpret_cast<T*>(to));
  }
}

template <class T>
struct Integers {
  using Number = T;
  using Bits = hwy::MakeUnsigned<T>;
  static constexpr std::size_t bytes = sizeof(T);
  static constexpr std::size_t lanes = HWY_LANES(T);

  template <std::size_t N>
  static HWY_INLINE Vector<Tag<T, N>> load(const std::byte* from) {
    return hn::BitCast(Tag<T, N>(), load_bits<N>(from, Bits{}));
  }
  template <std::size_t N>
  static HWY_INLINE void store(Vector<Tag<T, N>> v, std::byte* to) {
    store_bits<N>(hn::BitCast(Tag<Bits, N>(), v), to, Bits{});
  }
};

// Bytes in 16 bits each, for products: no instruction set multiplies bytes.
struct WideBytes {
  using Number = std::uint16_t;
  static constexpr std::size_t bytes = 1;
  static constexpr std::size_t lanes = HWY_LANES(std::uint16_t);

  template <std::size_t N>
  static HWY_INLINE Vector<Tag<std::uint16_t, N>> load(const std::byte* from) {
    return hn::PromoteTo(Tag<std::uint16_t, N>(), load_bits<N>(from, std::uint8_t{}));
  }
  template <std::size_t N>
  static HWY_INLINE void store(Vector<Tag<std::uint16_t, N>> v, std::byte* to) {
    const Tag<std::uint16_t, N> d;
    const Tag<std::int16_t, N> as_signed;
    const auto low = hn::BitCast(as_signed, hn::And(v, hn::Set(d, 0xff)));
    store_bits<N>(hn::DemoteTo(Tag<std::uint8_t, N>(), low), to, std::uint8_t{});
  }
};

template <class T>
struct Floats {
  using Number = T;
  using Bits = hwy::MakeUnsigned<T>;
  static constexpr std::size_t bytes = sizeof(T);
  static constexpr std::size_t lanes = HWY_LANES(T);

  template <std::size_t N>
  static HWY_INLINE Vector<Tag<T, N>> load(const std::byte* from) {
    return hn::BitCast(Tag<T, N>(), load_bits<N>(from, Bits{}));
  }
  template <std::size_t N>
  static HWY_INLINE void store(Vector<Tag<T, N>> v, std::byte* to) {
    const Tag<T, N> d;
    const auto nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
    store_bits<N>(hn::BitCast(Tag<Bits, N>(), hn::IfThenElse(hn::IsNaN(v), nan, v)), to, Bits{});
  }
};

// bfloat16 is the upper half of a float32, so the two that lie in 32 bits need no shuffle: the even one is shifted up,
// the odd one masked (1.5 times as fast as widening them in order).
template <class V>
struct EvenOdd {
  V even, odd;
};

struct Bfloat16s {
  using Number = float;
  static constexpr std::size_t bytes = 2;
  static constexpr std::size_t lanes = HWY_LANES(std::uint16_t);
  template <std::size_t N>
  using Words = Tag<std::uint32_t, N == 1 ? 1 : N / 2>;
  template <std::size_t N>
  using Value = EvenOdd<Vector<hn::RebindToFloat<Words<N>>>>;

  template <std::size_t N>
  static HWY_INLINE Value<N> load(const std::byte* from) {
    const Words<N> words;
    const hn::RebindToFloat<Words<N>> floats;
    const auto halves = load_bits<N>(from, std::uint16_t{});
    Vector<Words<N>> pairs;
    if constexpr (N == 1) {
      pairs = hn::PromoteTo(words, halves);
    } else {
      pairs = hn::BitCast(words, halves);
    }
    return {hn::BitCast(floats, hn::ShiftLeft<16>(pairs)),
            hn::BitCast(floats, hn::And(pairs, hn::Set(words, 0xffff0000u)))};
  }

  template <std::size_t N>
  static HWY_INLINE void store(const Value<N>& v, std::byte* to) {
    const Tag<std::uint16_t, N> halves;
    const auto even = hn::ShiftRight<16>(rounded<N>(v.even));
    Vector<Tag<std::uint16_t, N>> codes;
    if constexpr (N == 1) {
      codes = hn::DemoteTo(halves, hn::BitCast(Tag<std::int32_t, 1>(), even));
    } else {
      codes = hn::OddEven(hn::BitCast(halves, rounded<N>(v.odd)), hn::BitCast(halves, even));
    }
    // A NaN is still one after rounding: those of bfloat16 operands, and those that arithmetic makes, have no bit set
    // in the lower half that a carry could come from.
    const Tag<std::int16_t, N> as_signed;
    const auto magnitude = hn::BitCast(as_signed, hn::And(codes, hn::Set(halves, 0x7fff)));
    const auto is_nan = hn::RebindMask(halves, hn::Gt(magnitude, hn::Set(as_signed, bfloat16.beyond)));
    store_bits<N>(hn::IfThenElse(is_nan, hn::Set(halves, bfloat16.nan), codes), to, std::uint16_t{});
  }

 private:
  // To nearest even, in the upper half.
  template <std::size_t N, class V>
  static HWY_INLINE Vector<Words<N>> rounded(V v) {
    const Words<N> words;
    const auto bits = hn::BitCast(words, v);
#if HWY_TARGET <= HWY_AVX3
    // With mask registers the choice costs one instruction less.
    const auto odd = hn::TestBit(bits, hn::Set(words, 0x10000));
    return hn::Add(bits, hn::IfThenElse(odd, hn::Set(words, 0x8000), hn::Set(words, 0x7fff)));
#else
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
    return hn::Add(hn::Add(bits, hn::Set(words, 0x7fff)), odd);
#endif
  }
};

// The codes of a small format, in 32 bits each, as float32.
template <FloatFormat format, class D, class V>
HWY_INLINE Vector<D> decode_lanes(D floats, V codes) {
  const Unsigned<D> words;
  const hn::RebindToSigned<D> as_signed;
  constexpr int shift = 23 - format.mantissa_bits;
  constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - format.bias()) << 23;
  constexpr float smallest =
      std::bit_cast<float>(static_cast<std::uint32_t>(127 + format.smallest_exponent() - format.mantissa_bits) << 23);

  const auto magnitude = hn::And(codes, hn::Set(words, format.sign() - 1));
  const auto as_integer = hn::BitCast(as_signed, magnitude);
  const auto normal = hn::Add(hn::ShiftLeft<shift>(magnitude), hn::Set(words, rebias));
  const auto subnormal = hn::BitCast(words, hn::Mul(hn::ConvertTo(floats, as_integer), hn::Set(floats, smallest)));
  const auto is_subnormal = hn::Lt(as_integer, hn::Set(as_signed, 1 << format.mantissa_bits));
  const auto finite = hn::IfThenElse(hn::RebindMask(words, is_subnormal), subnormal, normal);
  const auto is_beyond = hn::Gt(as_integer, hn::Set(as_signed, static_cast<std::int32_t>(format.beyond) - 1));
  const auto exponent = hn::IfThenElseZero(hn::RebindMask(words, is_beyond), hn::Set(words, 0x7f800000u));
  const auto sign = hn::ShiftLeft<32 - format.width()>(hn::Xor(codes, magnitude));
  return hn::BitCast(floats, hn::Or(hn::Or(finite, exponent), sign));
}

// float32 rounded to a small format: codes in 32 bits each.
template <FloatFormat format, class D, class V>
HWY_INLINE Vector<Unsigned<D>> encode_lanes(D floats, V v) {
  const Unsigned<D> words;
  const hn::RebindToSigned<D> as_signed;
  constexpr int shift = 23 - format.mantissa_bits;
  constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - format.bias()) << 23;
  constexpr std::uint32_t half = (1u << (shift - 1)) - 1;
  // In a sum with this number the last place is that of the format's subnormals: the addition rounds.
  constexpr auto magic = static_cast<std::uint32_t>(127 + format.smallest_exponent() - format.mantissa_bits + 23) << 23;

  const auto bits = hn::BitCast(words, v);
  const auto magnitude = hn::And(bits, hn::Set(words, 0x7fffffffu));
  const auto as_integer = hn::BitCast(as_signed, magnitude);
  const auto odd = hn::And(hn::ShiftRight<shift>(magnitude), hn::Set(words, 1));
  const auto rebiased = hn::Add(hn::Add(magnitude, odd), hn::Set(words, half - rebias));
  const auto normal = hn::Min(hn::ShiftRight<shift>(rebiased), hn::Set(words, format.beyond));
  const auto sum = hn::Add(hn::BitCast(floats, magnitude), hn::Set(floats, std::bit_cast<float>(magic)));
  const auto subnormal = hn::Sub(hn::BitCast(words, sum), hn::Set(words, magic));
  const auto is_subnormal = hn::Lt(as_integer, hn::Set(as_signed, static_cast<std::int32_t>(rebias + (1u << 23))));
  const auto code = hn::IfThenElse(hn::RebindMask(words, is_subnormal), subnormal, normal);
  const auto sign = hn::ShiftRight<32 - format.width()>(hn::Xor(bits, magnitude));
  const auto is_nan = hn::RebindMask(words, hn::Gt(as_integer, hn::Set(as_signed, 0x7f800000)));
  return hn::IfThenElse(is_nan, hn::Set(words, format.nan), hn::Or(code, sign));
}

template <FloatFormat format, class Code>
struct SmallFloats {
  using Number = float;
  static constexpr std::size_t bytes = sizeof(Code);
  static constexpr std::size_t lanes = HWY_LANES(float);

  template <std::size_t N>
  static HWY_INLINE Vector<Tag<float, N>> load(const std::byte* from) {
    const auto codes = load_bits<N>(from, Code{});
    return decode_lanes<format>(Tag<float, N>(), hn::PromoteTo(Tag<std::uint32_t, N>(), codes));
  }
  template <std::size_t N>
  static HWY_INLINE void store(Vector<Tag<float, N>> v, std::byte* to) {
    const auto words = hn::BitCast(Tag<std::int32_t, N>(), encode_lanes<format>(Tag<float, N>(), v));
    store_bits<N>(hn::DemoteTo(Tag<Code, N>(), words), to, Code{});
  }
};

// float16 by the processor's own conversions (F16C). Where there are none Highway's do not round to nearest.
struct NativeHalves {
  using Number = float;
  static constexpr std::size_t bytes = 2;
  static constexpr std::size_t lanes = HWY_LANES(float);

  template <std::size_t N>
  static HWY_INLINE Vector<Tag<float, N>> load(const std::byte* from) {
    const Tag<hwy::float16_t, N> halves;
    return hn::PromoteTo(Tag<float, N>(), hn::BitCast(halves, load_bits<N>(from, std::uint16_t{})));
  }
  template <std::size_t N>
  static HWY_INLINE void store(Vector<Tag<float, N>> v, std::byte* to) {
    const auto nan = hn::Set(Tag<float, N>(), std::numeric_limits<float>::quiet_NaN());
    const auto halves = hn::DemoteTo(Tag<hwy::float16_t, N>(), hn::IfThenElse(hn::IsNaN(v), nan, v));
    store_bits<N>(hn::BitCast(Tag<std::uint16_t, N>(), halves), to, std::uint16_t{});
  }
};

using Halves = std::conditional_t<(HWY_TARGET <= HWY_AVX2), NativeHalves, SmallFloats<binary16, std::uint16_t>>;

}  // namespace paceline::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
