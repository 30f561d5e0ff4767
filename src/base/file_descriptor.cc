#include "base/file_descriptor.h"

#include <fcntl.h>

#include <cerrno>

namespace paceline {
namespace {

const char* remedy(int error) {
  switch (error) {
    case EMFILE: return ": this process may open no more files; raise its limit with `ulimit -n`";
    case ENFILE: return ": this machine may open no more files; raise fs.file-max";
    case EFBIG: return ": this process may make no file so long, nor memory to share; raise its limit with `ulimit -f`";
    default: return "";
  }
}

}  // namespace

FileDescriptor::FileDescriptor(int fd) : fd_(fd) {
  if (fd < STDIN_FILENO || fd > STDERR_FILENO) return;
  fd_ = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
}

Status descriptor_error(const std::string& what, int error) {
  Status::Detail detail = Status::system(what, error).detail();
  detail.message += remedy(error);
  return Status(std::move(detail));
}

}  // namespace paceline
