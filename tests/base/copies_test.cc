#include "base/copies.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/cpus.h"

namespace paceline {
namespace {

constexpr std::byte untouched{0xEE};

TEST_CASE("copies of every length from and to every alignment are whole, and touch nothing beside") {
  std::vector<std::byte> from(40'000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + (i / 256));
  for (const std::size_t source : {0U, 1U, 33U}) {
    for (std::size_t target = 64; target < 128; target += 7) {
      for (std::size_t bytes : {0U, 1U, 63U, 64U, 65U, 127U, 128U, 300U, 700U, 2047U, 2048U, 3000U, 8192U, 12'287U,
                                12'288U, 16'384U, 16'449U, 33'000U}) {
        CAPTURE(source);
        CAPTURE(target);
        CAPTURE(bytes);
        for (const auto copy : {cached_copy, stream_copy})
          for (const Lines lines : {Lines::read, Lines::taken}) {
            std::vector<std::byte> to(bytes + 300, untouched);
            copy(&to[target], &from[source], bytes, lines);
            bool right = true;
            for (std::size_t i = 0; i < to.size(); ++i) {
              const bool inside = i >= target && i < target + bytes;
              right = right && to[i] == (inside ? from[source + i - target] : untouched);
            }
            CHECK(right);
          }
      }
    }
  }
}

TEST_CASE("stream_fold gives what the fold gives, also where the target is a source") {
  const FoldFunction fold = fold_function(DataType::int32, Operation::sum);
  for (const std::size_t elements : {0U, 1U, 1023U, 1024U, 1025U, 5000U}) {
    for (const std::size_t count : {1U, 2U, 3U, 70U}) {
      CAPTURE(elements);
      CAPTURE(count);
      std::vector<std::vector<int>> inputs(count, std::vector<int>(elements));
      std::vector<int> wanted(elements);
      std::vector<const std::byte*> sources;
      for (std::size_t s = 0; s < count; ++s) {
        for (std::size_t i = 0; i < elements; ++i) wanted[i] += inputs[s][i] = static_cast<int>(i * 31 + s * 1009);
        sources.push_back(reinterpret_cast<const std::byte*>(inputs[s].data()));
      }
      std::vector<int> result(elements);
      stream_fold(fold, reinterpret_cast<std::byte*>(result.data()), sources.data(), count, elements, sizeof(int));
      CHECK(result == wanted);
      stream_fold(fold, reinterpret_cast<std::byte*>(inputs[0].data()), sources.data(), count, elements, sizeof(int));
      CHECK(inputs[0] == wanted);
    }
  }
}

TEST_CASE("the more ranks take turns on a CPU, the sooner outputs are written past the cache") {
  const std::size_t alone = streaming_from(1, 2).folds;
  CHECK(alone >= 2 * static_cast<std::size_t>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE))));
  CHECK(alone >= std::min<std::size_t>(shared_cache_of_one_cpu(), 16 << 20));
  CHECK(alone <= std::size_t{1} << 30);
  CHECK(streaming_from(2, 2).folds <= alone);
  CHECK(streaming_from(8, 2).folds <= streaming_from(2, 2).folds);
  for (const double sharing : {1, 2, 8})
    for (const double at_once : {2, 16})
      CHECK(streaming_from(sharing, at_once).copies <= streaming_from(sharing, at_once).folds);
}

TEST_CASE("a few ranks write past a cache that is far what their own has no room for; others, and many, do not") {
  const StreamingFrom few = streaming_from(1, 2);
  const StreamingFrom many = streaming_from(1, 16);
  CHECK(few.folds == many.folds);
  CHECK(few.early == shared_cache_is_far());
  CHECK(!many.early);
  if (shared_cache_is_far())
    CHECK(2 * few.copies <= many.copies);
  else
    CHECK(few.copies == many.copies);
}

}  // namespace
}  // namespace paceline
