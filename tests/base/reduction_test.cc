#include "base/reduction.h"

#include <doctest/doctest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/elements.h"

using namespace paceline;
using namespace paceline::testing;

namespace {

constexpr Operation operations[] = {Operation::sum, Operation::prod, Operation::max, Operation::min};

// Runs `body` once with each instruction set that this processor and this build have.
template <class Body>
void on_every_instruction_set(const Body& body) {
  const std::int64_t all = hwy::SupportedTargets();
  for (const std::int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_SCALAR}) {
    if (target != HWY_SCALAR && (all & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    // A build with sanitizers leaves some out.
    if (instruction_set() == std::string(hwy::TargetName(target))) {
      CAPTURE(instruction_set());
      body();
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(all);
}

// ---- The reference: one element at a time ----

template <class T>
T combined(Operation op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (op == Operation::sum) return a + b;
    if (op == Operation::prod) return a * b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) == (op == Operation::min) ? a : b;
  } else {
    const auto x = static_cast<std::uint64_t>(a), y = static_cast<std::uint64_t>(b);
    if (op == Operation::sum) return static_cast<T>(x + y);
    if (op == Operation::prod) return static_cast<T>(x * y);
  }
  return op == Operation::min ? std::min(a, b) : std::max(a, b);
}

template <class T>
T canonical(T value) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(value)) return std::numeric_limits<T>::quiet_NaN();
  return value;
}

template <class T>
T read(DataType type, const std::byte* element) {
  return is_small(type) ? static_cast<T>(load_element(type, element)) : number_at<T>(element);
}
template <class T>
void write(DataType type, T value, std::byte* element) {
  if (is_small(type)) return store_element(type, static_cast<double>(value), element);
  value = canonical(value);
  std::memcpy(element, &value, sizeof value);
}

using Row = std::vector<std::byte>;

Row folded(DataType type, Operation op, const std::vector<Row>& sources, std::size_t count, std::size_t elements) {
  if (count == 1) return sources[0];
  Row result(elements * size_of(type));
  with_number(type, [&]<class T>(T) {
    for (std::size_t i = 0; i < result.size(); i += size_of(type)) {
      T value = read<T>(type, &sources[0][i]);
      for (std::size_t s = 1; s < count; ++s) value = combined(op, value, read<T>(type, &sources[s][i]));
      write(type, value, &result[i]);
    }
  });
  return result;
}

// ---- Inputs ----

// Values of like size, any bits at all, and zeros, infinities, NaNs, the least and the largest numbers.
Row random_row(DataType type, std::size_t elements, std::mt19937_64& random) {
  Row row(elements * size_of(type));
  for (std::size_t i = 0; i < row.size(); i += size_of(type)) {
    const std::uint64_t kind = random() % 8;
    std::uint64_t bits = random();
    if (is_floating(type) && kind < 4) {
      const double value = static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-61;
      store_element(type, value, &row[i]);
      continue;
    }
    if (kind == 7) {
      const std::uint64_t top = std::uint64_t{1} << (8 * size_of(type) - 1);
      std::uint64_t infinity = 0x7ff0000000000000;
      if (type == DataType::float32) infinity = 0x7f800000;
      if (is_small(type)) infinity = format_of(type).beyond;
      const std::uint64_t special[] = {
          0, top, 1, top - 1, top + 1, infinity, infinity | top, infinity + 1, infinity - 1, ~std::uint64_t{0}};
      bits = special[random() % std::size(special)];
    }
    std::memcpy(&row[i], &bits, size_of(type));
  }
  return row;
}

// A row at `offset` bytes from an aligned address, between guards.
class Guarded {
 public:
  Guarded(const std::byte* bytes, std::size_t size, std::size_t offset) : memory_(size + 192, guard), size_(size) {
    const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(memory_.data()) % 64;
    begin_ = 128 - misaligned + offset;
    std::copy_n(bytes, size, data());
  }
  std::byte* data() { return memory_.data() + begin_; }
  bool holds(const std::byte* expected) {
    return std::memcmp(data(), expected, size_) == 0 &&
           std::all_of(memory_.data(), data(), [](std::byte b) { return b == guard; }) &&
           std::all_of(data() + size_, memory_.data() + memory_.size(), [](std::byte b) { return b == guard; });
  }

 private:
  static constexpr std::byte guard{0xa5};
  Row memory_;
  std::size_t size_, begin_ = 0;
};

const std::vector<std::size_t>& lengths() {
  static const std::vector<std::size_t> values = [] {
    std::vector<std::size_t> some{191, 192, 193, 255, 256, 257, 511, 512, 513, 1031};
    for (std::size_t n = 0; n <= 130; ++n) some.push_back(n);
    return some;
  }();
  return values;
}

bool all_lengths_fold(DataType type, Operation op, std::size_t count, const std::vector<Row>& sources,
                      const Row& expected) {
  const FoldFunction fold = fold_function(type, op);
  struct Offsets {
    std::size_t target, sources;
  };
  for (const Offsets offset : {Offsets{0, 0}, Offsets{size_of(type), 0}, Offsets{3, 1}}) {
    std::vector<Guarded> rows;
    std::vector<const std::byte*> addresses;
    for (std::size_t s = 0; s < count; ++s)
      rows.emplace_back(sources[s].data(), sources[s].size(), offset.sources + s % 2);
    for (Guarded& row : rows) addresses.push_back(row.data());
    for (const std::size_t elements : lengths()) {
      const Row zeros(elements * size_of(type));
      Guarded target(zeros.data(), zeros.size(), offset.target);
      fold(target.data(), addresses.data(), count, elements);
      if (!target.holds(expected.data())) return false;

      const std::size_t in_place = elements % count;
      Guarded both(sources[in_place].data(), zeros.size(), offset.target);
      std::vector<const std::byte*> with_target = addresses;
      with_target[in_place] = both.data();
      fold(both.data(), with_target.data(), count, elements);
      if (!both.holds(expected.data())) return false;
    }
  }
  return true;
}

// One element of a type from its bits.
template <class T>
Row row_of(std::initializer_list<T> values) {
  Row row(values.size() * sizeof(T));
  std::memcpy(row.data(), values.begin(), row.size());
  return row;
}

// The code that a float32 is rounded to: that of one times it.
std::uint32_t rounded(DataType type, float value) {
  std::uint32_t code = 0;
  auto* element = reinterpret_cast<std::byte*>(&code);
  store_element(type, 1, element);
  multiply(type, element, element, scaling_factor(value), 1);
  return code;
}

Row fold_rows(DataType type, Operation op, const std::vector<Row>& sources) {
  std::vector<const std::byte*> addresses;
  for (const Row& row : sources) addresses.push_back(row.data());
  Row target(sources[0].size());
  fold_function(type, op)(target.data(), addresses.data(), addresses.size(), target.size() / size_of(type));
  return target;
}

}  // namespace

TEST_CASE("the code for a processor without vectors, and that for this one, are both there") {
  std::vector<std::string> seen;
  on_every_instruction_set([&] { seen.emplace_back(instruction_set()); });
  CHECK(seen.size() >= 2);
  CHECK(seen.back() == "SCALAR");
  CHECK(seen.front() == instruction_set());
}

TEST_CASE("every type and operation folds to the reference's bits, in place or not, at every tail and alignment") {
  std::mt19937_64 random(1);
  for (int t = 0; t < data_type_count; ++t) {
    const auto type = static_cast<DataType>(t);
    std::vector<Row> sources;
    for (int s = 0; s < 8; ++s) sources.push_back(random_row(type, 1031, random));
    for (const Operation op : operations)
      for (const std::size_t count : {1, 2, 3, 5, 8}) {
        const Row expected = folded(type, op, sources, count, 1031);
        on_every_instruction_set([&] {
          CAPTURE(name(type));
          CAPTURE(name(op));
          CAPTURE(count);
          CHECK(all_lengths_fold(type, op, count, sources, expected));
        });
      }
  }
}

TEST_CASE("every pair of 8-bit floats") {
  for (const DataType type : {DataType::float8e4m3, DataType::float8e5m2}) {
    std::vector<Row> sources(2, Row(65536));
    for (std::size_t i = 0; i < 65536; ++i) {
      sources[0][i] = static_cast<std::byte>(i % 256);
      sources[1][i] = static_cast<std::byte>(i / 256);
    }
    for (const Operation op : operations) {
      const Row expected = folded(type, op, sources, 2, 65536);
      on_every_instruction_set([&] { CHECK(fold_rows(type, op, sources) == expected); });
    }
  }
}

TEST_CASE("every 16-bit float survives widening and rounding; each NaN becomes the one NaN") {
  for (const DataType type : {DataType::float16, DataType::bfloat16}) {
    Row codes(2 * 65536);
    for (std::uint32_t code = 0; code < 65536; ++code) std::memcpy(&codes[2 * code], &code, 2);
    const Row expected = folded(type, Operation::max, {codes, codes}, 2, 65536);
    on_every_instruction_set([&] { CHECK(fold_rows(type, Operation::max, {codes, codes}) == expected); });
  }
}

TEST_CASE("16-bit floats are added in float32 and rounded once") {
  // 2048 + 1 is a tie in float16 and falls back to 2048; two ones make a difference only when nothing is rounded
  // between them.
  const auto result =
      fold_rows(DataType::float16, Operation::sum,
                {row_of<std::uint16_t>({0x6800}), row_of<std::uint16_t>({0x3c00}), row_of<std::uint16_t>({0x3c00})});
  CHECK(number_at<std::uint16_t>(result.data()) == 0x6801);
}

TEST_CASE("min and max: a NaN wins on either side, and -0 is less than +0") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Row left = row_of<float>({nan, 1.0f, -0.0f, 0.0f});
  const Row right = row_of<float>({1.0f, nan, 0.0f, -0.0f});
  on_every_instruction_set([&] {
    CHECK(fold_rows(DataType::float32, Operation::min, {left, right}) == row_of<float>({nan, nan, -0.0f, -0.0f}));
    CHECK(fold_rows(DataType::float32, Operation::max, {left, right}) == row_of<float>({nan, nan, 0.0f, 0.0f}));
  });
}

TEST_CASE("what is too large becomes an infinity, or a NaN in e4m3, which has none") {
  struct Case {
    DataType type;
    float largest, rounds_down, overflows;
    std::uint32_t largest_code, beyond;
  };
  for (const Case& c : {Case{DataType::float16, 65504, 65519, 65520, 0x7bff, 0x7c00},
                        Case{DataType::bfloat16, 0x1.fep127F, 0x1.fefep127F, 0x1.ffp127F, 0x7f7f, 0x7f80},
                        Case{DataType::float8e4m3, 448, 464, 464.5F, 0x7e, 0x7f},
                        Case{DataType::float8e5m2, 57344, 61439, 61440, 0x7b, 0x7c}}) {
    on_every_instruction_set([&] {
      CHECK(rounded(c.type, c.largest) == c.largest_code);
      CHECK(rounded(c.type, c.rounds_down) == c.largest_code);
      CHECK(rounded(c.type, c.overflows) == c.beyond);
      CHECK(rounded(c.type, std::numeric_limits<float>::max()) == c.beyond);
      CHECK(rounded(c.type, -INFINITY) == (c.beyond | format_of(c.type).sign()));
    });
  }
}

TEST_CASE("a sum too large for e4m3 is a NaN with its sign; what is made of that is the type's one NaN") {
  // 448, -448 and -NaN.
  const Row summands = row_of<std::uint8_t>({0x7e, 0xfe, 0xff});
  on_every_instruction_set([&] {
    CHECK(fold_rows(DataType::float8e4m3, Operation::sum, {summands, summands}) ==
          row_of<std::uint8_t>({0x7f, 0xff, 0x7f}));
  });
}

TEST_CASE("a factor of a small float: every code") {
  for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2}) {
    int wrong = 0;
    for (std::uint32_t code = 0; code < 2 * format_of(type).sign(); ++code) {
      const Factor factor = factor_of_element(type, &code);
      const Factor expected = scaling_factor(small_to_double(format_of(type), code));
      wrong += std::isnan(number_at<float>(expected.data())) ? !std::isnan(number_at<float>(factor.data()))
                                                             : factor != expected;
    }
    CAPTURE(name(type));
    CHECK(wrong == 0);
  }
}

TEST_CASE("a float32 is rounded to small floats: every code, every midpoint between codes, and its neighbours") {
  for (const DataType type : {DataType::float16, DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2})
    on_every_instruction_set([&] {
      const Format& format = format_of(type);
      int wrong = 0;
      for (std::uint32_t code = 0; code < 2 * format.sign(); ++code) {
        const auto value = static_cast<float>(small_to_double(format, code));
        wrong += rounded(type, value) != (std::isnan(value) ? format.nan : code);
      }
      for (std::uint32_t code = 0; code < format.beyond; ++code) {
        const auto middle = static_cast<float>((format.magnitudes[code] + format.magnitudes[code + 1]) / 2);
        wrong += rounded(type, middle) != code + code % 2;
        wrong += rounded(type, -std::nextafter(middle, 0.0F)) != (code | format.sign());
        wrong += rounded(type, std::nextafter(middle, INFINITY)) != code + 1;
      }
      CAPTURE(name(type));
      CHECK(wrong == 0);
    });
}

TEST_CASE("multiply is one product per element, rounded once, out of place and in place") {
  std::mt19937_64 random(2);
  for (int t = 0; t < data_type_count; ++t) {
    const auto type = static_cast<DataType>(t);
    const Row source = random_row(type, 531, random);
    Row element(size_of(type)), expected(source.size());
    store_element(type, is_floating(type) ? 0.3 : 7, element.data());
    const Factor factor = factor_of_element(type, element.data());
    with_number(type, [&]<class T>(T) {
      const T by = read<T>(type, element.data());
      for (std::size_t i = 0; i < source.size(); i += size_of(type))
        write(type, combined(Operation::prod, read<T>(type, &source[i]), by), &expected[i]);
    });
    on_every_instruction_set([&] {
      CAPTURE(name(type));
      for (const std::size_t elements : {0, 1, 5, 31, 64, 100, 531}) {
        const std::size_t bytes = elements * size_of(type);
        const Row zeros(bytes);
        Guarded target(zeros.data(), bytes, 1), both(source.data(), bytes, 1);
        multiply(type, target.data(), source.data(), factor, elements);
        multiply(type, both.data(), both.data(), factor, elements);
        CHECK(target.holds(expected.data()));
        CHECK(both.holds(expected.data()));
      }
    });
  }
}

TEST_CASE("what averages are scaled by is not rounded to their type") {
  for (const DataType type : {DataType::float16, DataType::float8e4m3, DataType::float8e5m2})
    for (const int ranks : {3, 5, 7}) {
      CAPTURE(name(type));
      CAPTURE(ranks);
      // Products that the type has.
      for (const double quotient : {0.5, 1.0, 1.5}) {
        Row element(size_of(type)), scaled(size_of(type));
        store_element(type, ranks * quotient, element.data());
        if (load_element(type, element.data()) != ranks * quotient) continue;
        multiply(type, scaled.data(), element.data(), scaling_factor(1.0 / ranks), 1);
        CHECK(load_element(type, scaled.data()) == quotient);
      }
      // Of all others as many are rounded up as down.
      if (type != DataType::float16) continue;
      double off = 0;
      for (int i = 0; i < 1024; ++i) {
        Row element(size_of(type)), scaled(size_of(type));
        const double value = 1 + i / 1024.0;
        store_element(type, value, element.data());
        multiply(type, scaled.data(), element.data(), scaling_factor(1.0 / ranks), 1);
        off += (load_element(type, scaled.data()) * ranks / value - 1) / 1024;
      }
      CHECK(std::abs(off) < 2e-5);
    }
}

TEST_CASE("divide cuts integers towards zero and rounds floats once") {
  std::mt19937_64 random(3);
  for (int t = 0; t < data_type_count; ++t)
    for (const int divisor : {1, 3, 7, 300}) {
      const auto type = static_cast<DataType>(t);
      const Row source = random_row(type, 531, random);
      Row expected(source.size());
      with_number(type, [&]<class T>(T) {
        for (std::size_t i = 0; i < source.size(); i += size_of(type)) {
          const T value = read<T>(type, &source[i]);
          if constexpr (std::is_floating_point_v<T> || sizeof(T) == 8) {
            write(type, static_cast<T>(value / static_cast<T>(divisor)), &expected[i]);
          } else {
            write(type, static_cast<T>(static_cast<std::int64_t>(value) / divisor), &expected[i]);
          }
        }
      });
      on_every_instruction_set([&] {
        CAPTURE(name(type));
        CAPTURE(divisor);
        for (const std::size_t elements : {0, 1, 31, 531}) {
          Guarded target(source.data(), elements * size_of(type), 1);
          divide(type, target.data(), divisor, elements);
          CHECK(target.holds(expected.data()));
        }
      });
    }
}
