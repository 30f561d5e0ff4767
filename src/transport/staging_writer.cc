#include "transport/staging_writer.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "base/copies.h"

namespace paceline {
namespace {

// Of shorter messages the far ones' first lines, which nothing makes faster, are most of the time.
constexpr std::size_t least_bytes = 8 << 10;
// Near, stores past the cache cost the reader twice the time, and the writer up to as much; far they gain more.
constexpr double worth = 2;

}  // namespace

void StagingWay::Tried::add(double time) {
  ++messages;
  sum += time;
  slowest = std::max(slowest, time);
}

void StagingWay::wrote(std::size_t bytes, std::uint64_t time) {
  if (stage_ == Stage::decided) {
    left_ -= std::min(left_, bytes);
    if (left_ != 0) return;
    stage_ = Stage::tries_through;
    through_ = past_ = {};
    return;
  }
  Tried& tried = stage_ == Stage::tries_through ? through_ : past_;
  tried.add(static_cast<double>(time) / static_cast<double>(bytes));
  if (tried.messages < tried_messages) return;
  if (stage_ == Stage::tries_through) {
    stage_ = Stage::tries_past;
    return;
  }
  past_cache_ = through_.usual() > worth * past_.usual();
  stage_ = Stage::decided;
  left_ = decided_bytes;
}

void StagingWriter::write(std::byte* target, const std::byte* source, std::size_t bytes) {
  if (bytes < least_bytes) {
    std::memcpy(target, source, bytes);
    return;
  }
  const bool on_trial = way_.on_trial();
  const std::uint64_t begin = on_trial ? __rdtsc() : 0;
  if (way_.past_cache())
    stream_copy(target, source, bytes);
  else
    std::memcpy(target, source, bytes);
  way_.wrote(bytes, on_trial ? __rdtsc() - begin : 0);
}

}  // namespace paceline
