// TCP sockets as the bootstrap needs them: non-blocking, closed on exec, one address each, every wait with a deadline.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/private_descriptor.h"
#include "base/status.h"

namespace paceline {

using Clock = std::chrono::steady_clock;

// Looks twice a second whether waits go on in vain.
class Lookout {
 public:
  // `why_not`: an error ends the wait.
  explicit Lookout(std::function<Status()> why_not) : why_not_(std::move(why_not)) {}

  [[nodiscard]] Clock::time_point next() const { return next_; }
  // If it is time.
  Status look() {
    if (Clock::now() < next_) return {};
    next_ = Clock::now() + std::chrono::milliseconds(500);
    return why_not_();
  }

 private:
  std::function<Status()> why_not_;
  Clock::time_point next_ = Clock::now();
};

// How long a wait lasts: to a moment, or less, should a descriptor become readable before, or it be in vain.
struct Until {
  Until(Clock::time_point moment, int gives_up = -1) : deadline(moment), given_up(gives_up) {}

  Clock::time_point deadline;
  int given_up;                // readable once nobody wants what is waited for any more; -1: none
  Lookout* lookout = nullptr;  // nullptr: none
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

std::string host_of(const SocketAddress& address);  // numeric; an IPv4 address mapped into IPv6 as IPv4
int port_of(const SocketAddress& address);
std::string describe(const SocketAddress& address);  // "10.0.0.1:29500", "[::1]:29500"
bool is_loopback(const SocketAddress& address);

// How long a name server is waited for where nothing says it.
inline constexpr auto resolving_time = std::chrono::seconds(10);

// A numeric address or a name. The system's resolver has time limits of its own, and may take longer; then a thread
// waits for its answer in vain.
Result<std::vector<SocketAddress>> resolve(const std::string& host, int port, Clock::time_point deadline);

// Listens on the first address that `host` stands for, and on no other. Port 0: one that is free.
Result<FileDescriptor> listen_at(const std::string& host, int port,
                                 Clock::time_point deadline = Clock::now() + resolving_time);
// The next connection that waits; not valid if none does.
Result<PrivateDescriptor> accept_from(int listener);
// One attempt at each address of the host.
Result<PrivateDescriptor> connect_to(const std::string& host, int port, const Until& until);
// Whether an error of connect_to may go away by waiting (rank 0 has not started yet).
bool may_pass(const Status& connect_error);

// Whether a connection broke with this errno because the system has given the other host up: nobody has closed it.
bool is_out_of_reach(int error);

SocketAddress local_address(int fd);
SocketAddress peer_address(int fd);

// For poll(): until the deadline, rounded up; never negative.
int milliseconds_until(Clock::time_point deadline);
// Until one of the events is there. Code::timeout at the deadline, Code::aborted where the wait is given up; the error
// of the lookout.
Status wait_for(int fd, short events, const Until& until);
Status send_all(int fd, std::span<const std::byte> bytes, const Until& until);
// Up to `bytes.size()` bytes, at least one. Code::remote if the other side has closed the connection.
Result<std::size_t> receive_some(int fd, std::span<std::byte> bytes, const Until& until);

}  // namespace paceline
