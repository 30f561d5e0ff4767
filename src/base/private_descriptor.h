// A file descriptor that forked children do not get. A child that lives on (a data loader's worker) would otherwise
// hold its dead parent's connection open, and nobody would learn of the death. In the child the descriptor is replaced
// by one of /dev/null, so that its number is not given to another file while the parent's objects still name it.
#pragma once

#include <utility>

#include "base/file_descriptor.h"

namespace paceline {

class PrivateDescriptor {
 public:
  PrivateDescriptor() = default;
  explicit PrivateDescriptor(FileDescriptor fd);
  PrivateDescriptor(PrivateDescriptor&& other) noexcept = default;
  PrivateDescriptor& operator=(PrivateDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~PrivateDescriptor() { reset(); }

  [[nodiscard]] int get() const { return fd_.get(); }
  [[nodiscard]] bool valid() const { return fd_.valid(); }
  void reset();

 private:
  FileDescriptor fd_;
};

}  // namespace paceline
