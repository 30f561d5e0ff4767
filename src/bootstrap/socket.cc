#include "bootstrap/socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/interrupted.h"
#include "base/signals_blocked.h"

namespace paceline {
namespace {

constexpr int waiting_connections = 1024;  // of ranks that come at the same moment; the kernel may cut it

Result<FileDescriptor> make_socket(const SocketAddress& address) {
  FileDescriptor fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return descriptor_error("cannot make a socket", errno);
  return fd;
}

// Control messages are small and few: each is to leave at once, and a dead host is to be noticed some day.
void tune(int fd) {
  const int on = 1;
  const int idle = 30, interval = 10, count = 3;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

const sockaddr* raw(const SocketAddress& address) { return reinterpret_cast<const sockaddr*>(&address.storage); }

bool same(const SocketAddress& a, const SocketAddress& b) {
  return port_of(a) == port_of(b) && host_of(a) == host_of(b);
}

Result<PrivateDescriptor> connect_to_address(const SocketAddress& address, const Until& until) {
  Result<FileDescriptor> made = make_socket(address);
  PACE_TRY(made.status());
  PrivateDescriptor fd(std::move(*made));
  const auto failed = [&](int error) { return Status::system("cannot connect to " + describe(address), error); };
  if (::connect(fd.get(), raw(address), address.length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return failed(errno);
    Status waited = wait_for(fd.get(), POLLOUT, until);
    if (waited.code() == Code::timeout) return failed(ETIMEDOUT);
    PACE_TRY(waited);
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return failed(error);
  }
  // Nobody listens, and the kernel chose the very port as ours: TCP then connects the socket to itself.
  if (same(local_address(fd.get()), peer_address(fd.get()))) return failed(ECONNREFUSED);
  tune(fd.get());
  return fd;
}

// What getaddrinfo has found.
struct Found {
  int error = 0;
  int system_errno = 0;
  std::vector<SocketAddress> addresses;
};

Found look_up(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* entries = nullptr;
  Found found;
  found.error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &entries);
  found.system_errno = errno;
  if (found.error != 0) return found;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(entries, ::freeaddrinfo);
  for (const addrinfo* entry = entries; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address;
    address.length = entry->ai_addrlen;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    found.addresses.push_back(address);
  }
  return found;
}

Status no_address(const std::string& host, std::string_view why, int error) {
  Status::Detail detail;
  detail.code = Code::system;
  detail.message = fmt::format("the host name \"{}\" cannot be resolved: {}", host, why);
  detail.host = host;
  detail.system_errno = error;  // EHOSTUNREACH: a name may be unknown until rank 0's node is up
  return Status(std::move(detail));
}

// getaddrinfo can be neither given up nor told how long it has. So a thread of its own waits for it, which shares
// nothing with this one but the answer, and may come too late.
Result<Found> look_up_until(const std::string& host, int port, Clock::time_point deadline) {
  auto answer = std::make_shared<std::promise<Found>>();
  std::future<Found> coming = answer->get_future();
  try {
    const SignalsBlocked blocked;
    std::thread([answer, host, port] {
      try {
        answer->set_value(look_up(host, port, 0));
      } catch (...) {  // out of memory: for who waits
        answer->set_exception(std::current_exception());
      }
    }).detach();
  } catch (const std::system_error& error) {
    return Status::system("cannot start a thread", error.code().value());
  }
  if (coming.wait_until(deadline) != std::future_status::ready)
    return no_address(host, "no name server has answered in time", EHOSTUNREACH);
  return coming.get();
}

SocketAddress address_by(int (*function)(int, sockaddr*, socklen_t*), int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (function(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) return {};
  return address;
}

}  // namespace

std::string host_of(const SocketAddress& address) {
  char host[NI_MAXHOST] = "";
  if (::getnameinfo(raw(address), address.length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  constexpr std::string_view mapped = "::ffff:";
  const std::string_view text = host;
  return std::string(text.starts_with(mapped) && text.find('.') != text.npos ? text.substr(mapped.size()) : text);
}

int port_of(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET)
    return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
  if (address.storage.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_port);
  return 0;
}

std::string describe(const SocketAddress& address) {
  const std::string host = host_of(address);
  const bool brackets = host.find(':') != host.npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", host, brackets ? "]" : "", port_of(address));
}

bool is_loopback(const SocketAddress& address) {
  const std::string host = host_of(address);
  return host.starts_with("127.") || host == "::1";
}

Result<std::vector<SocketAddress>> resolve(const std::string& host, int port, Clock::time_point deadline) {
  // A number needs no server, so no thread either.
  Found found = look_up(host, port, AI_NUMERICHOST);
  if (found.error == EAI_NONAME) {
    Result<Found> answer = look_up_until(host, port, deadline);
    PACE_TRY(answer.status());
    found = std::move(*answer);
  }
  if (found.error != 0)
    return no_address(host, ::gai_strerror(found.error), found.error == EAI_SYSTEM ? found.system_errno : EHOSTUNREACH);
  return std::move(found.addresses);
}

Result<FileDescriptor> listen_at(const std::string& host, int port, Clock::time_point deadline) {
  Result<std::vector<SocketAddress>> addresses = resolve(host, port, deadline);
  PACE_TRY(addresses.status());
  const SocketAddress& address = addresses->front();
  Result<FileDescriptor> fd = make_socket(address);
  PACE_TRY(fd.status());
  const int on = 1;
  // The connections of an earlier job may linger in TIME_WAIT; two listeners on one port remain impossible.
  ::setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.storage.ss_family == AF_INET6) ::setsockopt(fd->get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd->get(), raw(address), address.length) != 0 || ::listen(fd->get(), waiting_connections) != 0) {
    const int error = errno;
    std::string remedy;
    if (error == EADDRINUSE) remedy = "; another job or another rank 0 listens there: choose another port";
    if (error == EADDRNOTAVAIL) remedy = "; the address is none of this machine's: rank 0 must run where it belongs";
    if (error == EACCES) remedy = "; choose a port above 1023";
    Status::Detail detail = Status::system("cannot listen on " + describe(address), error).detail();
    detail.message += remedy;
    return Status(std::move(detail));
  }
  return fd;
}

Result<PrivateDescriptor> accept_from(int listener) {
  for (;;) {
    PrivateDescriptor fd(FileDescriptor(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    if (fd.valid()) {
      tune(fd.get());
      return fd;
    }
    switch (errno) {
      case EAGAIN:
      case ENOBUFS:
      case ENOMEM: return PrivateDescriptor();
      // A signal; or of that one connection, which has gone (accept(2)): take the next.
      case EINTR:
      case ECONNABORTED:
      case EHOSTDOWN:
      case EHOSTUNREACH:
      case ENETDOWN:
      case ENETUNREACH:
      case ENONET:
      case ENOPROTOOPT:
      case EOPNOTSUPP:
      case EPROTO: break;
      default: return descriptor_error("cannot accept a connection", errno);
    }
  }
}

Result<PrivateDescriptor> connect_to(const std::string& host, int port, const Until& until) {
  Result<std::vector<SocketAddress>> addresses = resolve(host, port, until.deadline);
  PACE_TRY(addresses.status());
  Status first;
  auto left = static_cast<std::ptrdiff_t>(addresses->size());
  for (const SocketAddress& address : *addresses) {
    // One that does not answer at all leaves the others their share of the time.
    const auto now = Clock::now();
    Until share = until;
    share.deadline = (until.deadline - now) / left-- + now;
    Result<PrivateDescriptor> fd = connect_to_address(address, share);
    if (fd.ok()) return fd;
    if (first.ok()) first = fd.status();
  }
  return first;
}

bool may_pass(const Status& connect_error) {
  switch (connect_error.detail().system_errno) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:  // all local ports in use just now
    case EAGAIN: return true;
    default: return false;
  }
}

bool is_out_of_reach(int error) { return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH; }

SocketAddress local_address(int fd) { return address_by(::getsockname, fd); }
SocketAddress peer_address(int fd) { return address_by(::getpeername, fd); }

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

Status wait_for(int fd, short events, const Until& until) {
  for (;;) {
    if (until.lookout != nullptr) PACE_TRY(until.lookout->look());
    const auto look = until.lookout == nullptr ? until.deadline : until.lookout->next();
    const auto next = std::min<Clock::time_point>({until.deadline, look, Clock::now() + between_questions});
    pollfd entries[] = {{fd, events, 0}, {until.given_up, POLLIN, 0}};
    const int ready = ::poll(entries, 2, milliseconds_until(next));
    if (entries[1].revents != 0) return Status(Code::aborted, "the wait was given up");
    if (ready > 0) return {};
    if (ready == 0 && Clock::now() >= until.deadline) return Status(Code::timeout, "no answer in time");
    if (ready < 0 && errno != EINTR) return Status::system("poll", errno);
    if (ready <= 0 && interrupted()) return Status(Code::aborted, "the wait was interrupted");
  }
}

Status send_all(int fd, std::span<const std::byte> bytes, const Until& until) {
  while (!bytes.empty()) {
    PACE_TRY(wait_for(fd, POLLOUT, until));
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == ECONNRESET || errno == EPIPE) {
      return Status(Code::remote, "the other side closed the connection");
    } else if (errno != EAGAIN && errno != EINTR) {
      return Status::system("send", errno);
    }
  }
  return {};
}

Result<std::size_t> receive_some(int fd, std::span<std::byte> bytes, const Until& until) {
  for (;;) {
    PACE_TRY(wait_for(fd, POLLIN, until));
    const ssize_t received = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received > 0) return static_cast<std::size_t>(received);
    if (received == 0 || errno == ECONNRESET) return Status(Code::remote, "the other side closed the connection");
    if (errno != EAGAIN && errno != EINTR) return Status::system("recv", errno);
  }
}

}  // namespace paceline
