// What the proof computes with instead of numbers: for every element of a buffer, which ranks' inputs were folded into
// it, and in what order.
//
// A long message is one value: all its elements have the same expression, each over its own index of the ranks' inputs.
// Equal expressions have equal ids, so that "the same fold order" is one comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace paceline {

using Expression = std::uint32_t;  // below the number of ranks: that rank's input; else a fold

class Expressions {
 public:
  explicit Expressions(int ranks);
  // A rank that two of the operands contain, if there is one: then they must not be folded.
  [[nodiscard]] std::optional<int> in_common(std::span<const Expression> operands) const;
  // The operands folded in this order.
  Expression fold(std::span<const Expression> operands);
  // How many ranks' inputs it contains.
  [[nodiscard]] int ranks_in(Expression expression) const;

 private:
  [[nodiscard]] std::span<const std::uint64_t> set(Expression expression) const;

  std::size_t words_;                // of one set
  std::vector<std::uint64_t> sets_;  // the ranks in each expression
  std::map<std::vector<Expression>, Expression> folds_;
};

// Elements [begin, end) of a buffer or a message: element p has the expression over input element p + shift.
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
  Expression expression = 0;
  std::ptrdiff_t shift = 0;

  bool operator==(const Stretch&) const = default;
};

// The elements of a message, from 0 on, without holes.
using Stretches = std::vector<Stretch>;

// The contents of one buffer, as far as it has been written.
class Contents {
 public:
  // Elements [offset, offset + count), numbered from 0; nothing if one of them was never written.
  [[nodiscard]] std::optional<Stretches> read(std::size_t offset, std::size_t count) const;
  void write(std::size_t offset, std::size_t count, const Stretches& message);

 private:
  Stretches stretches_;  // ascending; neighbours that go on alike are one
};

}  // namespace paceline
