// Another process for a test: a forked child that runs a function and ends with its result.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/file_descriptor.h"

namespace paceline {

class Child {
 public:
  // `body` returns whether all was well; nothing of the parent's is destroyed. A child that hangs ends itself.
  template <class Body>
  explicit Child(const Body& body) : pid_(fork()) {
    if (pid_ != 0) return;
    alarm(60);
    _exit(body() ? 0 : 1);
  }
  ~Child() {
    if (pid_ > 0) (void)ended_well();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  // Waits for its end.
  bool ended_well() {
    int how = -1;
    const bool waited = pid_ > 0 && waitpid(pid_, &how, 0) == pid_;
    pid_ = -1;
    return waited && WIFEXITED(how) && WEXITSTATUS(how) == 0;
  }

 private:
  pid_t pid_;
};

// One way between the two: what it writes, the other reads. Waiting for the other's end is reading from a closed pipe.
class Pipe {
 public:
  Pipe() {
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0) return;
    reader_ = FileDescriptor(ends[0]);
    writer_ = FileDescriptor(ends[1]);
  }

  template <class Value>
  bool put(const Value& value) {
    return write(writer_.get(), &value, sizeof value) == sizeof value;
  }
  template <class Value>
  bool get(Value* value) {
    return read(reader_.get(), value, sizeof *value) == sizeof *value;
  }

 private:
  FileDescriptor reader_;
  FileDescriptor writer_;
};

}  // namespace paceline
