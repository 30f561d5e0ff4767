// Keeps a connection out of forked children. A child that lives on (a data loader's worker) would otherwise hold its
// dead parent's connection open, and nobody would learn of the death. In the child the descriptor is replaced by one of
// /dev/null, so that its number is not given to another file while the parent's objects still name it.
#pragma once

#include <utility>

namespace paceline {

class ForkGuard {
 public:
  ForkGuard() = default;
  explicit ForkGuard(int fd);
  ForkGuard(ForkGuard&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ForkGuard& operator=(ForkGuard&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~ForkGuard();

 private:
  int fd_ = -1;
};

}  // namespace paceline
