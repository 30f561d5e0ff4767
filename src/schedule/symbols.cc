#include "schedule/symbols.h"

#include <algorithm>
#include <bit>

namespace paceline {

Expressions::Expressions(int ranks)
    : words_((static_cast<std::size_t>(ranks) + 63) / 64), sets_(static_cast<std::size_t>(ranks) * words_) {
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank)
    sets_[rank * words_ + rank / 64] = std::uint64_t{1} << rank % 64;
}

std::span<const std::uint64_t> Expressions::set(Expression expression) const {
  return std::span(sets_).subspan(expression * words_, words_);
}

std::optional<int> Expressions::in_common(std::span<const Expression> operands) const {
  for (std::size_t word = 0; word < words_; ++word) {
    std::uint64_t seen = 0;
    for (const Expression operand : operands) {
      const std::uint64_t ranks = set(operand)[word];
      if (seen & ranks) return static_cast<int>(word * 64) + std::countr_zero(seen & ranks);
      seen |= ranks;
    }
  }
  return std::nullopt;
}

Expression Expressions::fold(std::span<const Expression> operands) {
  const auto next = static_cast<Expression>(sets_.size() / words_);
  const auto [found, is_new] = folds_.try_emplace(std::vector(operands.begin(), operands.end()), next);
  if (!is_new) return found->second;
  sets_.resize(sets_.size() + words_);
  for (const Expression operand : operands)
    for (std::size_t word = 0; word < words_; ++word) sets_[next * words_ + word] |= sets_[operand * words_ + word];
  return next;
}

int Expressions::ranks_in(Expression expression) const {
  int count = 0;
  for (const std::uint64_t word : set(expression)) count += std::popcount(word);
  return count;
}

std::optional<Stretches> Contents::read(std::size_t offset, std::size_t count) const {
  Stretches message;
  const std::size_t end = offset + count;
  std::size_t reached = offset;
  auto at =
      std::partition_point(stretches_.begin(), stretches_.end(), [&](const Stretch& s) { return s.end <= offset; });
  for (; at != stretches_.end() && at->begin <= reached && reached < end; ++at) {
    const std::size_t stop = std::min(at->end, end);
    message.push_back(
        {reached - offset, stop - offset, at->expression, at->shift + static_cast<std::ptrdiff_t>(offset)});
    reached = stop;
  }
  if (reached < end) return std::nullopt;
  return message;
}

void Contents::write(std::size_t offset, std::size_t count, const Stretches& message) {
  const std::size_t end = offset + count;
  const auto first =
      std::partition_point(stretches_.begin(), stretches_.end(), [&](const Stretch& s) { return s.end < offset; });
  const auto last = std::partition_point(first, stretches_.end(), [&](const Stretch& s) { return s.begin <= end; });

  Stretches changed;
  const auto add = [&changed](Stretch stretch) {
    if (stretch.begin >= stretch.end) return;
    if (!changed.empty() && changed.back().expression == stretch.expression && changed.back().shift == stretch.shift) {
      changed.back().end = stretch.end;
    } else {
      changed.push_back(stretch);
    }
  };
  // `first` to `last` touch what is written: keep what sticks out on both sides.
  if (first != last) add({first->begin, std::min(first->end, offset), first->expression, first->shift});
  for (const Stretch& stretch : message) {
    add({stretch.begin + offset, stretch.end + offset, stretch.expression,
         stretch.shift - static_cast<std::ptrdiff_t>(offset)});
  }
  if (first != last) {
    const Stretch& tail = *std::prev(last);
    add({std::max(tail.begin, end), tail.end, tail.expression, tail.shift});
  }
  const auto place = stretches_.erase(first, last);
  stretches_.insert(place, changed.begin(), changed.end());
}

}  // namespace paceline
