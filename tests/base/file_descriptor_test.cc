#include "base/file_descriptor.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "transport/child.h"

namespace paceline {
namespace {

bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("file descriptor: none takes the number of a standard stream that is closed") {
  Child child([] {
    for (int stream = 0; stream < 3; ++stream) close(stream);
    const FileDescriptor first(eventfd(0, EFD_CLOEXEC)), second(eventfd(0, EFD_CLOEXEC));
    return first.get() > 2 && second.get() > 2 && first.get() != second.get() && is_open(first.get()) &&
           (fcntl(first.get(), F_GETFD) & FD_CLOEXEC) != 0 && !is_open(0) && !is_open(1) && !is_open(2);
  });
  CHECK(child.ended_well());
}

}  // namespace paceline
