// A file descriptor that closes itself. Its number is never that of a standard stream: where a program was started
// without one, what it prints, or we log, would go into a connection or into memory that ranks share.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

#include "base/status.h"

namespace paceline {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Takes a new one, or the -1 of a call that failed; -1 with its errno also where it must be renumbered and cannot.
  explicit FileDescriptor(int fd);
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~FileDescriptor() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  // Gives the descriptor away: the caller closes it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

// An error of a call that makes a descriptor; where there were too few of them, with the remedy.
Status descriptor_error(const std::string& what, int error);

}  // namespace paceline
