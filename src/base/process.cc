#include "base/process.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/file_descriptor.h"

namespace paceline {

bool has_ended(pid_t pid) {
  const FileDescriptor process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid()) return ::kill(pid, 0) != 0 && errno == ESRCH;
  pollfd entry{process.get(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace paceline
