#include "base/file_descriptor.h"

#include <cerrno>

namespace paceline {

Status descriptor_error(const std::string& what, int error) {
  if (error != EMFILE && error != ENFILE) return Status::system(what, error);
  Status::Detail detail = Status::system(what, error).detail();
  detail.message += error == EMFILE ? ": this process may open no more files; raise its limit with `ulimit -n`"
                                    : ": this machine may open no more files; raise fs.file-max";
  return Status(std::move(detail));
}

}  // namespace paceline
