// How a rank writes its staging: through its cache or past it, whichever is faster now.
//
// What was written through the cache comes from there to a near reader, at once. But first the writer must take each
// line from the cache of its last reader: where that one is far (another socket, another cluster of CPUs, virtual CPUs
// that were moved apart), lines come one after the other, at 2 GB/s. Stores past the cache wait for nobody; their
// reader then reads memory. 1 MB between two CPUs (EPYC): near 30 us through the cache, 67 past it; far 440 and 65.
//
// The writer alone can tell which it is: now and then it times a few messages of each kind.
#pragma once

#include <cstddef>
#include <cstdint>

namespace paceline {

// Which way the next message is written.
class StagingWay {
 public:
  // Bytes before the first trial: staging is walked through for the first time, its lines come from memory.
  static constexpr std::size_t first_bytes = std::size_t{4} << 20;
  // Bytes between one trial and the next.
  static constexpr std::size_t decided_bytes = std::size_t{32} << 20;
  // Of each kind in a trial. All but the slowest count, which may have been disturbed: some have only been read by
  // ranks that share this CPU, and are written fast also where the others are far.
  static constexpr int tried_messages = 4;

  [[nodiscard]] bool past_cache() const { return stage_ == Stage::decided ? past_cache_ : stage_ == Stage::tries_past; }
  // Whether wrote() wants to know how long the next message took.
  [[nodiscard]] bool on_trial() const { return stage_ != Stage::decided; }
  // A message of so many bytes was written, in so much time (of any unit).
  void wrote(std::size_t bytes, std::uint64_t time);

 private:
  enum class Stage : std::uint8_t { decided, tries_through, tries_past };
  // The times for a byte of the messages of one kind.
  struct Tried {
    int messages = 0;
    double sum = 0;
    double slowest = 0;
    void add(double time);
    [[nodiscard]] double usual() const { return sum - slowest; }
  };

  Stage stage_ = Stage::decided;
  bool past_cache_ = false;
  Tried through_;
  Tried past_;
  std::size_t left_ = first_bytes;  // until the next trial
};

class StagingWriter {
 public:
  void write(std::byte* target, const std::byte* source, std::size_t bytes);

 private:
  StagingWay way_;
};

}  // namespace paceline
