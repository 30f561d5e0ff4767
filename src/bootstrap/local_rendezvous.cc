#include "bootstrap/local_rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/digest.h"
#include "base/file_descriptor.h"
#include "base/interrupted.h"
#include "base/origin.h"
#include "bootstrap/handshake.h"
#include "bootstrap/member.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/secret.h"
#include "bootstrap/socket.h"

namespace paceline {
namespace {

constexpr auto pause = std::chrono::milliseconds(10);
constexpr auto probe_time = std::chrono::milliseconds(500);

// Mine alone: nobody else can read what is in it, or put something there.
bool is_private(const struct stat& about) { return about.st_uid == ::geteuid() && (about.st_mode & 077) == 0; }

Result<FileDescriptor> open_private(const std::string& path) {
  FileDescriptor directory(::open(path.c_str(), O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory.valid()) return descriptor_error("cannot open the directory " + path, errno);
  struct stat about {};
  if (::fstat(directory.get(), &about) != 0) return Status::system("cannot examine " + path, errno);
  if (!is_private(about))
    return Status(Code::invalid_usage,
                  fmt::format("{0} does not belong to this user alone, so a job's secret is not safe there: remove it, "
                              "or `chmod 700 {0}`, or set PACELINE_ADDRESS and PACELINE_SECRET_FILE",
                              path));
  return directory;
}

struct Directory {
  FileDescriptor fd;
  std::string path;
};

Result<Directory> meeting_place() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') {
    Result<FileDescriptor> directory = open_private(runtime);
    if (directory.ok()) return Directory{std::move(*directory), runtime};
  }
  const std::string path = fmt::format("/tmp/paceline-{}", ::geteuid());
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Status::system("cannot make " + path, errno);
  Result<FileDescriptor> directory = open_private(path);
  PACE_TRY(directory.status());
  return Directory{std::move(*directory), path};
}

std::string file_name(const std::string& job) {
  const Digest digest = sha256(job);
  std::string name = "paceline-";
  for (std::size_t i = 0; i < 16; ++i) name += fmt::format("{:02x}", static_cast<unsigned>(digest[i]));
  return name;
}

// The file while ranks meet; removed at the end unless another job's has taken its place.
class Notice {
 public:
  Notice(Directory directory, std::string name) : directory_(std::move(directory)), name_(std::move(name)) {}
  ~Notice() {
    struct stat about {};
    if (inode_ != 0 && origin_.is_here() &&
        ::fstatat(directory_.fd.get(), name_.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 && about.st_ino == inode_)
      ::unlinkat(directory_.fd.get(), name_.c_str(), 0);
  }
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

  // Whole or not at all: others see an earlier file until this one is complete.
  Status write(const std::string& text) {
    const std::string draft = fmt::format("{}.{}", name_, ::getpid());
    const int directory = directory_.fd.get();
    ::unlinkat(directory, draft.c_str(), 0);
    const FileDescriptor file(
        ::openat(directory, draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid()) {
      const int error = errno;
      ::unlinkat(directory, draft.c_str(), 0);  // it is there where its descriptor could not be renumbered
      return descriptor_error(fmt::format("cannot make {}/{}", directory_.path, draft), error);
    }
    struct stat about {};
    const bool written = ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                         ::fstat(file.get(), &about) == 0 &&
                         ::renameat(directory, draft.c_str(), directory, name_.c_str()) == 0;
    if (!written) {
      const int error = errno;
      ::unlinkat(directory, draft.c_str(), 0);
      return Status::system(fmt::format("cannot write {}/{}", directory_.path, name_), error);
    }
    inode_ = about.st_ino;
    return {};
  }

 private:
  Directory directory_;
  std::string name_;
  ::ino_t inode_ = 0;
  Origin origin_;
};

// False: there is none, or none that can be meant.
Result<bool> read_notice(const Directory& directory, const std::string& name, Rendezvous& where) {
  const FileDescriptor file(::openat(directory.fd.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid() && (errno == EMFILE || errno == ENFILE))
    return descriptor_error(fmt::format("cannot read {}/{}", directory.path, name), errno);
  struct stat about {};
  if (!file.valid() || ::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) || !is_private(about)) return false;
  std::array<char, 512> text;
  const ssize_t length = ::read(file.get(), text.data(), text.size());
  if (length <= 0) return false;
  std::istringstream words(std::string(text.data(), static_cast<std::size_t>(length)));
  return static_cast<bool>(words >> where.address >> where.port >> where.secret) && where.port > 0 &&
         where.port < 65536;
}

Status publish(Directory directory, const std::string& name, Rendezvous& where) {
  Result<FileDescriptor> listener = listen_at(where.address, 0);
  PACE_TRY(listener.status());
  Result<std::string> secret = make_secret();
  PACE_TRY(secret.status());
  where.port = port_of(local_address(listener->get()));
  where.secret = std::move(*secret);
  auto notice = std::make_shared<Notice>(std::move(directory), name);
  PACE_TRY(notice->write(fmt::format("{} {} {}\n", where.address, where.port, where.secret)));
  where.held = std::move(notice);
  where.listener = PrivateDescriptor(std::move(*listener));
  return {};
}

// The timeout becomes what is left of it, in tenths of a second, for errors tell it.
Status find(const Directory& directory, const std::string& name, Rendezvous& where) {
  using Seconds = std::chrono::duration<double>;
  const auto begin = Clock::now();
  const auto deadline = begin + std::chrono::duration_cast<Clock::duration>(Seconds(where.timeout));
  Status last;
  for (; Clock::now() < deadline; std::this_thread::sleep_for(pause)) {
    if (interrupted()) return Status(Code::aborted, "it was interrupted");
    const Result<bool> found = read_notice(directory, name, where);
    PACE_TRY(found.status());
    if (!*found) continue;
    last = reach(where, probe_connection, std::min(deadline, Clock::now() + probe_time)).status();
    if (last.ok()) {
      const double left = where.timeout - Seconds(Clock::now() - begin).count();
      where.timeout = std::max(0.1, std::round(10 * left) / 10);
      return {};
    }
    // Anything may listen where a job that crashed did: only an error of our own, or an interrupt, ends this.
    if (last.code() == Code::aborted || (last.code() == Code::system && !may_pass(last))) return last;
  }
  Status::Detail detail;
  detail.code = Code::timeout;
  detail.rank = 0;
  detail.message =
      fmt::format("rank 0 did not come to the rendezvous within {:g} s: {}", where.timeout,
                  last.ok() ? fmt::format("it has not written {}/{}", directory.path, name) : last.message());
  return Status(std::move(detail));
}

}  // namespace

Result<Rendezvous> meet_on_this_node(const std::string& job, int rank, int size, const std::string& address,
                                     double timeout) {
  Rendezvous where;
  where.rank = rank;
  where.size = size;
  where.address = address;
  where.timeout = timeout;
  Result<Directory> directory = meeting_place();
  PACE_TRY(own_error(rank, directory.status()));
  const std::string name = file_name(job);
  PACE_TRY(own_error(rank, rank == 0 ? publish(std::move(*directory), name, where) : find(*directory, name, where)));
  return where;
}

}  // namespace paceline
