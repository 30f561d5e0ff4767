#include "base/private_descriptor.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace paceline {
namespace {

struct Guarded {
  std::mutex mutex;
  std::set<int> descriptors;
};

// Never destroyed: sessions may outlive static objects.
Guarded& guarded() {
  static Guarded* const once = [] {
    auto* made = new Guarded;
    ::pthread_atfork([] { guarded().mutex.lock(); }, [] { guarded().mutex.unlock(); },
                     [] {
                       const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
                       for (const int fd : guarded().descriptors) {
                         if (nothing >= 0)
                           ::dup3(nothing, fd, O_CLOEXEC);
                         else
                           ::close(fd);
                       }
                       if (nothing >= 0) ::close(nothing);
                       guarded().descriptors.clear();
                       guarded().mutex.unlock();
                     });
    return made;
  }();
  return *once;
}

}  // namespace

PrivateDescriptor::PrivateDescriptor(FileDescriptor fd) : fd_(std::move(fd)) {
  if (!fd_.valid()) return;
  const std::lock_guard lock(guarded().mutex);
  guarded().descriptors.insert(fd_.get());
}

void PrivateDescriptor::reset() {
  if (!fd_.valid()) return;
  const std::lock_guard lock(guarded().mutex);  // nobody forks in between
  guarded().descriptors.erase(fd_.get());
  fd_.reset();
}

}  // namespace paceline
