// Memory that a communicator keeps for its calls: grows at the first call of a shape, never shrinks.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/status.h"

namespace paceline {

class Arena {
 public:
  // At least `bytes`, aligned to cache lines; earlier contents are lost when it grows.
  Result<std::byte*> reserve(std::size_t bytes) {
    if (bytes > bytes_) {
      const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
      memory_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, rounded)));
      bytes_ = memory_ == nullptr ? 0 : rounded;
      if (memory_ == nullptr) return Status::system("allocating scratch memory", ENOMEM);
    }
    return memory_.get();
  }
  // nullptr: nothing was reserved so far.
  [[nodiscard]] const std::byte* begin() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace paceline
