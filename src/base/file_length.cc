#include "base/file_length.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

namespace paceline {

int set_length(int descriptor, std::size_t bytes) {
  rlimit longest{};
  if (getrlimit(RLIMIT_FSIZE, &longest) == 0 && bytes > longest.rlim_cur) return EFBIG;
  return ftruncate(descriptor, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
}

}  // namespace paceline
