#include "transport/segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/file_descriptor.h"
#include "base/file_length.h"
#include "base/fork_hold.h"
#include "base/process.h"

namespace paceline {
namespace {

// Mappings of this process by name, so that ranks which are threads of one process share them.
std::mutex mapped_mutex;
const HeldWhileForking<mapped_mutex> held_while_forking;
std::map<std::string, std::weak_ptr<Segment>>& mapped() {
  // Never destroyed: a segment may end after it, with a global object of the program's.
  static auto* segments = new std::map<std::string, std::weak_ptr<Segment>>();
  return *segments;
}

// Containers may share /dev/shm, and each have a process of the same number. 0 where the kernel does not say.
std::uint64_t pid_namespace() {
  struct stat facts {};
  return stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

std::string prefix_of(pid_t creator) { return fmt::format("paceline-{}-{:x}-", creator, pid_namespace()); }

Status creation_error(const std::string& name, std::size_t bytes, std::size_t least, int error) {
  if (error == EACCES || error == EROFS)
    return Status::system(
        "/dev/shm must be writable (`paceline doctor` says how), or use PACELINE_TRANSPORT=tcp: " + name, error);
  if (error != ENOSPC && error != ENOMEM) return descriptor_error("creating shared memory " + name, error);
  struct statvfs space {};
  const bool known = statvfs("/dev/shm", &space) == 0;
  const bool less_fits = least < bytes && (!known || least <= space.f_bavail * space.f_frsize);
  Status::Detail detail;
  detail.code = Code::system;
  detail.system_errno = error;
  detail.message = fmt::format(
      "/dev/shm is too small: {} MiB are needed, {} of its {} MiB are free; enlarge it (docker run --shm-size, or "
      "mount -o remount,size=...){} or use PACELINE_TRANSPORT=tcp",
      (bytes >> 20) + 1, known ? (space.f_bavail * space.f_frsize) >> 20 : 0,
      known ? (space.f_blocks * space.f_frsize) >> 20 : 0, less_fits ? ", lower PACELINE_STAGING," : "");
  return Status(std::move(detail));
}

// In pieces: older kernels undo what a call has allocated when a signal comes, and a program may have a timer. Where
// signals come faster than pieces are done, these get shorter.
int allocate(int descriptor, std::size_t bytes) {
  struct statvfs space {};  // what cannot fit must not fill it first
  if (fstatvfs(descriptor, &space) == 0 && space.f_blocks != 0 && bytes > space.f_blocks * space.f_frsize)
    return ENOSPC;
  constexpr std::size_t page = 4096;
  std::size_t piece = 16 << 20;
  for (std::size_t begin = 0; begin < bytes;) {
    const std::size_t length = std::min(piece, bytes - begin);
    const int error = posix_fallocate(descriptor, static_cast<off_t>(begin), static_cast<off_t>(length));
    if (error == 0)
      begin += length;
    else if (error == EINTR)
      piece = std::max(piece / 2, page);
    else
      return error;
  }
  return 0;
}

}  // namespace

bool proc_is_ours() {
  std::error_code trouble;
  return std::filesystem::read_symlink("/proc/self", trouble) == std::to_string(getpid());
}

Result<std::shared_ptr<Segment>> Segment::create(std::size_t bytes, std::size_t least) {
  unlink_left_behind();
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return Status::system("getrandom", errno);
  const std::string name = fmt::format("/{}{:016x}", prefix_of(getpid()), number);
  const int descriptor = FileDescriptor(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600)).release();
  int error = descriptor < 0 ? errno : set_length(descriptor, bytes);
  if (error == 0) error = allocate(descriptor, bytes);
  if (error != 0) {
    if (descriptor >= 0) close(descriptor);
    shm_unlink(name.c_str());  // it may be there also without a descriptor, which had to be renumbered
    return creation_error(name, bytes, least, error);
  }
  return map(name, descriptor, bytes, true);
}

Result<std::shared_ptr<Segment>> Segment::open(const std::string& name, std::size_t bytes) {
  {
    const std::lock_guard lock(mapped_mutex);
    if (auto found = mapped().find(name); found != mapped().end())
      if (auto segment = found->second.lock()) return segment;
  }
  const int descriptor = FileDescriptor(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0)).release();
  if (descriptor < 0) return descriptor_error("opening shared memory " + name, errno);
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0 || static_cast<std::size_t>(facts.st_size) != bytes || facts.st_uid != geteuid()) {
    close(descriptor);
    return Status(Code::system, fmt::format("shared memory {} is not the one that was announced", name));
  }
  return map(name, descriptor, bytes, false);
}

Result<std::shared_ptr<Segment>> Segment::map(const std::string& name, int descriptor, std::size_t bytes,
                                              bool creator) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  const int error = errno;
  close(descriptor);
  if (data == MAP_FAILED) {
    if (creator) shm_unlink(name.c_str());
    return Status::system("mapping shared memory " + name, error);
  }
  std::shared_ptr<Segment> segment(new Segment(name, static_cast<std::byte*>(data), bytes, creator));
  const std::lock_guard lock(mapped_mutex);
  mapped()[name] = segment;
  return segment;
}

Segment::~Segment() {
  if (creator_) unlink();
  munmap(data_, bytes_);
  const std::lock_guard lock(mapped_mutex);
  if (auto found = mapped().find(name_); found != mapped().end() && found->second.expired()) mapped().erase(found);
}

void Segment::unlink_left_behind() {
  if (!proc_is_ours()) return;
  std::error_code trouble;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", trouble)) {
    const std::string name = entry.path().filename();
    pid_t creator = 0;
    if (std::sscanf(name.c_str(), "paceline-%d-", &creator) == 1 && name.starts_with(prefix_of(creator)) &&
        has_ended(creator))
      shm_unlink(("/" + name).c_str());
  }
}

void Segment::populate(std::size_t offset, std::size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  madvise(data_ + offset, bytes, MADV_POPULATE_WRITE);
#else
  (void)offset, (void)bytes;
#endif
}

void Segment::unlink() {
  // Relaxed: only who takes the name away is decided here.
  if (linked_.exchange(false, std::memory_order_relaxed)) shm_unlink(name_.c_str());
}

}  // namespace paceline
