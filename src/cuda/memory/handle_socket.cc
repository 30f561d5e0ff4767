#include "cuda/memory/handle_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace paceline::cuda {
namespace {

constexpr int most_guests = 64;  // that wait

struct Hello {
  std::uint64_t token;
  std::int64_t rank;
};

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Status(Code::system, "the socket's name is too long: " + path);
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

std::string path_of(const std::string& name) { return "/dev/shm" + name; }

Result<PrivateDescriptor> new_socket() {
  PrivateDescriptor made(FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
  if (!made.valid()) return descriptor_error("making a Unix socket", errno);
  return made;
}

bool is_same_user(int connection) {
  ucred other{};
  socklen_t length = sizeof other;
  return ::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == ::geteuid();
}

// What is there may still come, or the kernel is short of something for now.
bool may_pass(int error) {
  return error == EAGAIN || error == EINTR || error == ENOBUFS || error == ENOMEM || error == ETOOMANYREFS;
}

}  // namespace

HandleSocket::Outcome HandleSocket::end() {
  connection_.reset();
  return Outcome::gone;
}

HandleSocket::Outcome HandleSocket::send(std::span<const std::byte> letter, int handle) {
  if (!open()) return Outcome::gone;
  iovec data{const_cast<std::byte*>(letter.data()), letter.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof handle)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (handle >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof handle);
    std::memcpy(CMSG_DATA(header), &handle, sizeof handle);
  }
  if (::sendmsg(connection_.get(), &message, MSG_NOSIGNAL) >= 0) return Outcome::done;
  return may_pass(errno) ? Outcome::later : end();
}

HandleSocket::Outcome HandleSocket::receive(std::span<std::byte> letter, FileDescriptor& handle) {
  handle.reset();
  if (!open()) return Outcome::gone;
  iovec data{letter.data(), letter.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t length = ::recvmsg(connection_.get(), &message, MSG_CMSG_CLOEXEC);
  if (length < 0) return may_pass(errno) ? Outcome::later : end();
  bool sound = static_cast<std::size_t>(length) == letter.size() && (message.msg_flags & MSG_TRUNC) == 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      sound = sound && !handle.valid();  // the room for one has room for two
      handle = FileDescriptor(descriptor);
    }
  }
  if (sound) return Outcome::done;
  handle.reset();
  return end();
}

Result<std::unique_ptr<HandleDoor>> HandleDoor::open(const std::string& name, std::uint64_t token) {
  const std::string path = path_of(name);
  auto address = address_of(path);
  PACE_TRY(address.status());
  auto listener = new_socket();
  PACE_TRY(listener.status());
  // Before there is a name: nobody else's connection is ever let in.
  if (::fchmod(listener->get(), S_IRUSR | S_IWUSR) != 0) return Status::system("the mode of a Unix socket", errno);
  if (::bind(listener->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
    return Status::system("naming the Unix socket " + path, errno);
  std::unique_ptr<HandleDoor> made(new HandleDoor(std::move(*listener), path, token));
  if (::listen(made->listener_.get(), most_guests) != 0) return Status::system("listening on " + path, errno);
  return made;
}

HandleDoor::~HandleDoor() { ::unlink(path_.c_str()); }

Result<HandleSocket> HandleDoor::enter(const std::string& name, std::uint64_t token, int rank) {
  const std::string path = path_of(name);
  auto address = address_of(path);
  PACE_TRY(address.status());
  auto connection = new_socket();
  PACE_TRY(connection.status());
  if (::connect(connection->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0)
    return Status::system("connecting to " + path, errno);
  if (!is_same_user(connection->get())) return Status(Code::system, path + " is another user's");
  HandleSocket socket(std::move(*connection));
  const Hello hello{token, rank};
  if (socket.send(std::as_bytes(std::span(&hello, 1))) != HandleSocket::Outcome::done)
    return Status(Code::system, path + " takes no letters");
  return socket;
}

HandleDoor::Guest HandleDoor::admit() {
  for (;;) {
    PrivateDescriptor connection(
        FileDescriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    if (!connection.valid()) return {};
    if (!is_same_user(connection.get())) continue;
    HandleSocket socket(std::move(connection));
    Hello hello{};
    FileDescriptor unasked;
    if (socket.receive(std::as_writable_bytes(std::span(&hello, 1)), unasked) == HandleSocket::Outcome::done &&
        hello.token == token_ && hello.rank >= 0)
      return {static_cast<int>(hello.rank), std::move(socket)};
  }
}

}  // namespace paceline::cuda
