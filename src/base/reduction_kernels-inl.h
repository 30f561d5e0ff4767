// The loops over a row, and the tables of them: compiled once for each instruction set.
//
// Every element takes the same operations wherever it lies: an end of a row that does not fill a vector is done by one
// that overlaps its neighbour, a short row by shorter vectors, never by other code. Nothing here can be contracted to a
// fused multiply-add that rounds differently: the only products that meet a sum are exact.
#if defined(PACELINE_REDUCTION_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PACELINE_REDUCTION_KERNELS_INL_H_
#undef PACELINE_REDUCTION_KERNELS_INL_H_
#else
#define PACELINE_REDUCTION_KERNELS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/reduction.h"
#include "base/reduction_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace paceline::HWY_NAMESPACE {

// ---- Operations on vectors ----

struct Sum {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    return hn::Add(a, b);
  }
};

struct Prod {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
#if HWY_TARGET != HWY_SCALAR
    if constexpr (std::is_same_v<hn::TFromV<V>, std::uint64_t>) {
      const hn::DFromV<V> words;
      const hn::Repartition<std::uint32_t, decltype(words)> halves;
      const auto a_low = hn::BitCast(halves, a), a_high = hn::BitCast(halves, hn::ShiftRight<32>(a));
      const auto b_low = hn::BitCast(halves, b), b_high = hn::BitCast(halves, hn::ShiftRight<32>(b));
      const auto cross = hn::Add(hn::MulEven(a_low, b_high), hn::MulEven(a_high, b_low));
      return hn::Add(hn::MulEven(a_low, b_low), hn::ShiftLeft<32>(cross));
    }
#endif
    return hn::Mul(a, b);
  }
};

// min and max of floats: a NaN wins, and -0 is less than +0.
struct Min {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
      const V lesser = hn::IfThenElse(hn::Lt(a, b), a, b);
      const V signed_zero = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), lesser);
      return hn::IfThenElse(hn::IsNaN(a), a, signed_zero);
    } else {
      return hn::Min(a, b);
    }
  }
};
struct Max {
  template <class V>
  HWY_INLINE V operator()(V a, V b) const {
    if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
      const V greater = hn::IfThenElse(hn::Gt(a, b), a, b);
      const V signed_zero = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), greater);
      return hn::IfThenElse(hn::IsNaN(a), a, signed_zero);
    } else {
      return hn::Max(a, b);
    }
  }
};

template <class Number>
struct Times {
  Number factor;
  template <class V>
  HWY_INLINE V operator()(V v) const {
    return Prod()(v, hn::Set(hn::DFromV<V>(), factor));
  }
};
template <class Number>
struct Over {
  Number divisor;
  template <class V>
  HWY_INLINE V operator()(V v) const {
    return hn::Div(v, hn::Set(hn::DFromV<V>(), divisor));
  }
};

template <class Op, class V>
HWY_INLINE V apply(const Op& op, V a, V b) {
  return op(a, b);
}
template <class Op, class V>
HWY_INLINE EvenOdd<V> apply(const Op& op, EvenOdd<V> a, EvenOdd<V> b) {
  return {op(a.even, b.even), op(a.odd, b.odd)};
}
template <class Op, class V>
HWY_INLINE V apply(const Op& op, V v) {
  return op(v);
}
template <class Op, class V>
HWY_INLINE EvenOdd<V> apply(const Op& op, EvenOdd<V> v) {
  return {op(v.even), op(v.odd)};
}

// ---- Values: fill() computes K vectors of N elements from element `i` on ----

template <class Row, std::size_t N>
using Value = decltype(Row::template load<N>(nullptr));

template <class Row, std::size_t N, std::size_t K>
HWY_INLINE void load(Value<Row, N> (&values)[K], const std::byte* row, std::size_t i) {
  for (std::size_t k = 0; k < K; ++k) values[k] = Row::template load<N>(row + (i + k * N) * Row::bytes);
}
template <class Row, std::size_t N, class Op, std::size_t K>
HWY_INLINE void accumulate(Value<Row, N> (&values)[K], const std::byte* row, std::size_t i) {
  for (std::size_t k = 0; k < K; ++k)
    values[k] = apply(Op(), values[k], Row::template load<N>(row + (i + k * N) * Row::bytes));
}

template <class Row, class Op>
struct Fold {
  const std::byte* const* sources;
  std::size_t count;

  template <std::size_t N, std::size_t K>
  HWY_INLINE void fill(Value<Row, N> (&values)[K], std::size_t i) const {
    load<Row, N>(values, sources[0], i);
    for (std::size_t s = 1; s < count; ++s) accumulate<Row, N, Op>(values, sources[s], i);
  }
};

template <class Row>
struct Loaded {
  const std::byte* source;

  template <std::size_t N, std::size_t K>
  HWY_INLINE void fill(Value<Row, N> (&values)[K], std::size_t i) const {
    load<Row, N>(values, source, i);
  }
};

template <class Row, class Op>
struct Mapped {
  const std::byte* source;
  Op op;

  template <std::size_t N, std::size_t K>
  HWY_INLINE void fill(Value<Row, N> (&values)[K], std::size_t i) const {
    load<Row, N>(values, source, i);
    for (std::size_t k = 0; k < K; ++k) values[k] = apply(op, values[k]);
  }
};

// ---- Walks over the target ----

// As many as hide the look-up of each source's address.
constexpr std::size_t vectors_at_once = HWY_TARGET == HWY_SCALAR ? 1 : 4;

template <class Row, std::size_t N, std::size_t K>
HWY_INLINE void store(const Value<Row, N> (&values)[K], std::byte* target, std::size_t i) {
  for (std::size_t k = 0; k < K; ++k) Row::template store<N>(values[k], target + (i + k * N) * Row::bytes);
}

// The first and the last vector are computed before all others and stored after them, so that they may overlap their
// neighbours even when the target is a source. Those between begin where the target is aligned: stores across cache
// lines cost a third of the speed. A row of less than one vector takes vectors of a quarter (and so on).
template <class Row, std::size_t N, class Source>
HWY_INLINE void walk(std::byte* target, std::size_t elements, const Source& source) {
  if (elements < N) {
    if constexpr (N > 1) walk<Row, (N > 4 ? N / 4 : 1)>(target, elements, source);
    return;
  }
  constexpr std::size_t K = N == Row::lanes ? vectors_at_once : 1;
  const std::size_t end = elements - N;
  Value<Row, N> first[1], last[1];
  source.template fill<N>(first, 0);
  source.template fill<N>(last, end);
  std::size_t i = N;
  if constexpr (K > 1) {
    const std::size_t unaligned = -reinterpret_cast<std::uintptr_t>(target) % (N * Row::bytes) / Row::bytes;
    if (unaligned > 0) i = unaligned;
    for (; i + K * N <= end; i += K * N) {
      Value<Row, N> values[K];
      source.template fill<N>(values, i);
      store<Row, N>(values, target, i);
    }
  }
  for (; i < end; i += N) {
    Value<Row, N> values[1];
    source.template fill<N>(values, i);
    store<Row, N>(values, target, i);
  }
  store<Row, N>(first, target, 0);
  store<Row, N>(last, target, end);
}

// ---- Folds and maps of whole rows ----

template <class Row, class Op>
void fold(std::byte* target, const std::byte* const* sources, std::size_t source_count, std::size_t elements) {
  if (source_count == 1) {
    if (elements > 0) std::memmove(target, sources[0], elements * Row::bytes);
  } else {
    walk<Row, Row::lanes>(target, elements, Fold<Row, Op>{sources, source_count});
  }
}

template <class Row, class Op>
void map(std::byte* target, const std::byte* source, Op op, std::size_t elements) {
  walk<Row, Row::lanes>(target, elements, Mapped<Row, Op>{source, op});
}

// Formats whose conversions are long (SmallFloats) are converted a block at a time and take the loops of float32:
// inlined into each of their own they were most of this file's code.
constexpr std::size_t block_elements = 512;

struct Block {
  alignas(64) float numbers[block_elements];
  std::byte* bytes() { return reinterpret_cast<std::byte*>(numbers); }
};

template <class Row>
HWY_NOINLINE void widen(Block& to, const std::byte* from, std::size_t elements) {
  walk<Floats<float>, Row::lanes>(to.bytes(), elements, Loaded<Row>{from});
}
template <class Row>
HWY_NOINLINE void narrow(std::byte* to, Block& from, std::size_t elements) {
  walk<Row, Row::lanes>(to, elements, Loaded<Floats<float>>{from.bytes()});
}

template <class Row, class Op>
void fold_in_blocks(std::byte* target, const std::byte* const* sources, std::size_t source_count,
                    std::size_t elements) {
  if (source_count == 1) return fold<Row, Op>(target, sources, 1, elements);
  Block result, operand;
  const std::byte* const both[] = {result.bytes(), operand.bytes()};
  for (std::size_t i = 0; i < elements; i += block_elements) {
    const std::size_t count = std::min(block_elements, elements - i);
    widen<Row>(result, sources[0] + i * Row::bytes, count);
    for (std::size_t s = 1; s < source_count; ++s) {
      widen<Row>(operand, sources[s] + i * Row::bytes, count);
      fold<Floats<float>, Op>(result.bytes(), both, 2, count);
    }
    narrow<Row>(target + i * Row::bytes, result, count);
  }
}

template <class Row, class Op>
void map_in_blocks(std::byte* target, const std::byte* source, Op op, std::size_t elements) {
  Block block;
  for (std::size_t i = 0; i < elements; i += block_elements) {
    const std::size_t count = std::min(block_elements, elements - i);
    widen<Row>(block, source + i * Row::bytes, count);
    map<Floats<float>>(block.bytes(), block.bytes(), op, count);
    narrow<Row>(target + i * Row::bytes, block, count);
  }
}

// ---- The rows of each type ----

using E4m3 = SmallFloats<float8e4m3, std::uint8_t>;
using E5m2 = SmallFloats<float8e5m2, std::uint8_t>;

template <class Row>
inline constexpr bool in_blocks = false;
template <FloatFormat format, class Code>
inline constexpr bool in_blocks<SmallFloats<format, Code>> = true;

template <class Row, class Op>
constexpr FoldFunction fold_with() {
  if constexpr (in_blocks<Row>) {
    return fold_in_blocks<Row, Op>;
  } else {
    return fold<Row, Op>;
  }
}

template <class SumRow, class ProdRow, class OrderRow>
FoldFunction fold_of(Operation op) {
  switch (op) {
    case Operation::prod: return fold_with<ProdRow, Prod>();
    case Operation::max: return fold_with<OrderRow, Max>();
    case Operation::min: return fold_with<OrderRow, Min>();
    default: return fold_with<SumRow, Sum>();
  }
}
template <class Row>
FoldFunction fold_of_float(Operation op) {
  return fold_of<Row, Row, Row>(op);
}
// Sums and products wrap: signed integers take the unsigned code.
template <class T>
FoldFunction fold_of_integer(Operation op) {
  using Wrapping = Integers<hwy::MakeUnsigned<T>>;
  return fold_of<Wrapping, std::conditional_t<sizeof(T) == 1, WideBytes, Wrapping>, Integers<T>>(op);
}

template <class Row, class Op>
void map_with(std::byte* target, const std::byte* source, Op op, std::size_t elements) {
  if constexpr (in_blocks<Row>) {
    map_in_blocks<Row>(target, source, op, elements);
  } else {
    map<Row>(target, source, op, elements);
  }
}

FoldFunction find_fold(DataType type, Operation op) {
  switch (type) {
    case DataType::int8: return fold_of_integer<std::int8_t>(op);
    case DataType::uint8: return fold_of_integer<std::uint8_t>(op);
    case DataType::int32: return fold_of_integer<std::int32_t>(op);
    case DataType::uint32: return fold_of_integer<std::uint32_t>(op);
    case DataType::int64: return fold_of_integer<std::int64_t>(op);
    case DataType::uint64: return fold_of_integer<std::uint64_t>(op);
    case DataType::float16: return fold_of_float<Halves>(op);
    case DataType::float32: return fold_of_float<Floats<float>>(op);
    case DataType::float64: return fold_of_float<Floats<double>>(op);
    case DataType::bfloat16: return fold_of_float<Bfloat16s>(op);
    case DataType::float8e4m3: return fold_of_float<E4m3>(op);
    case DataType::float8e5m2: return fold_of_float<E5m2>(op);
  }
  return nullptr;
}

template <class Row>
void times(std::byte* target, const std::byte* source, const Factor& factor, std::size_t elements) {
  using Number = typename Row::Number;
  Number number{};
  if constexpr (sizeof(Number) == Row::bytes || std::is_floating_point_v<Number>)
    std::memcpy(&number, factor.data(), sizeof number);
  else
    number = std::to_integer<Number>(factor[0]);
  map_with<Row>(target, source, Times<Number>{number}, elements);
}

void multiply_row(DataType type, std::byte* target, const std::byte* source, const Factor& factor,
                  std::size_t elements) {
  switch (type) {
    case DataType::int8:
    case DataType::uint8: return times<WideBytes>(target, source, factor, elements);
    case DataType::int32:
    case DataType::uint32: return times<Integers<std::uint32_t>>(target, source, factor, elements);
    case DataType::int64:
    case DataType::uint64: return times<Integers<std::uint64_t>>(target, source, factor, elements);
    case DataType::float16: return times<Halves>(target, source, factor, elements);
    case DataType::float32: return times<Floats<float>>(target, source, factor, elements);
    case DataType::float64: return times<Floats<double>>(target, source, factor, elements);
    case DataType::bfloat16: return times<Bfloat16s>(target, source, factor, elements);
    case DataType::float8e4m3: return times<E4m3>(target, source, factor, elements);
    case DataType::float8e5m2: return times<E5m2>(target, source, factor, elements);
  }
}

template <class Row>
void over(std::byte* target, int divisor, std::size_t elements) {
  using Number = typename Row::Number;
  map_with<Row>(target, target, Over<Number>{static_cast<Number>(divisor)}, elements);
}

// The quotient is rounded in Wide, then cut. Wide has so many more bits than T that a quotient which is no integer
// never rounds to one.
template <class T, class Wide>
void cut_quotients(std::byte* target, int divisor, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    T value;
    std::memcpy(&value, target + i * sizeof(T), sizeof value);
    value = static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
    std::memcpy(target + i * sizeof(T), &value, sizeof value);
  }
}

void divide_row(DataType type, std::byte* target, int divisor, std::size_t elements) {
  switch (type) {
    case DataType::int8: return cut_quotients<std::int8_t, float>(target, divisor, elements);
    case DataType::uint8: return cut_quotients<std::uint8_t, float>(target, divisor, elements);
    case DataType::int32: return cut_quotients<std::int32_t, double>(target, divisor, elements);
    case DataType::uint32: return cut_quotients<std::uint32_t, double>(target, divisor, elements);
    case DataType::int64: return cut_quotients<std::int64_t, std::int64_t>(target, divisor, elements);
    case DataType::uint64: return cut_quotients<std::uint64_t, std::uint64_t>(target, divisor, elements);
    case DataType::float16: return over<Halves>(target, divisor, elements);
    case DataType::float32: return over<Floats<float>>(target, divisor, elements);
    case DataType::float64: return over<Floats<double>>(target, divisor, elements);
    case DataType::bfloat16: return over<Bfloat16s>(target, divisor, elements);
    case DataType::float8e4m3: return over<E4m3>(target, divisor, elements);
    case DataType::float8e5m2: return over<E5m2>(target, divisor, elements);
  }
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace paceline::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
