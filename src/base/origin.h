// In which process an object was made. A forked child has a copy of it, but none of the threads and connections behind
// it: what it does with the copy must have no effect on the parent's, nor on the other ranks.
#pragma once

#include <atomic>
#include <cstdint>

namespace paceline {

class Origin {
 public:
  Origin();

  // Whether this is the process that made it (two loads).
  // Relaxed: a child is born with the count that it has for ever.
  [[nodiscard]] bool is_here() const { return forks_ == forks.load(std::memory_order_relaxed); }

 private:
  static std::atomic<std::uint64_t> forks;  // between the process that made the first Origin and this one

  std::uint64_t forks_;
};

}  // namespace paceline
