#include "bootstrap/control_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "bootstrap/socket.h"

namespace paceline {
namespace {

constexpr std::size_t piece_size = std::size_t{64} << 10;  // bytes read at a time
constexpr int most_pieces = 4;

Status unreachable(int error) {
  Status::Detail detail = Status::system("its host cannot be reached", error).detail();
  detail.code = Code::remote;
  return Status(std::move(detail));
}

}  // namespace

Frame make_frame(const ControlMessage& message) { return std::make_shared<const Bytes>(encode(message)); }

short ControlConnection::events() const { return static_cast<short>(output_.empty() ? POLLIN : POLLIN | POLLOUT); }

void ControlConnection::queue(Frame frame) {
  if (open()) output_.push_back(std::move(frame));
}

void ControlConnection::flush() {
  while (open() && !output_.empty()) {
    const Bytes& frame = *output_.front();
    const ssize_t sent = ::send(fd(), frame.data() + sent_, frame.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {
      send_error_ = errno;
      output_.clear();
      sent_ = 0;
      return;
    }
    sent_ += static_cast<std::size_t>(sent);
    if (sent_ == frame.size()) {
      output_.pop_front();
      sent_ = 0;
    }
  }
}

Status ControlConnection::receive(std::vector<ControlMessage>& into) {
  std::array<std::byte, piece_size> piece;
  for (int pieces = 0; pieces < most_pieces; ++pieces) {
    const ssize_t received = ::recv(fd(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) return {};
    if (received < 0 && is_out_of_reach(errno)) return unreachable(errno);
    // Who meets an error first takes it off the socket, which then reads as ended.
    if (received <= 0 && is_out_of_reach(send_error_)) return unreachable(send_error_);
    if (received <= 0) return Status(Code::remote, "its control connection closed");
    reader_.append(std::span(piece).first(static_cast<std::size_t>(received)));
    for (;;) {
      Result<std::optional<ControlMessage>> message = reader_.next();
      if (!message.ok()) return Status(Code::remote, "its control connection carried " + message.status().message());
      if (!message->has_value()) break;
      into.push_back(std::move(**message));
    }
  }
  return {};
}

void ControlConnection::finish() {
  if (open()) ::shutdown(fd(), SHUT_WR);
}

void ControlConnection::close() {
  fd_.reset();
  output_.clear();
  sent_ = 0;
}

void drain(std::vector<ControlConnection*> connections, Clock::time_point deadline) {
  std::vector<pollfd> entries;
  std::vector<std::byte> ignored(piece_size);
  for (;;) {
    std::erase_if(connections, [](const ControlConnection* connection) { return !connection->open(); });
    entries.clear();
    for (const ControlConnection* connection : connections) entries.push_back({connection->fd(), POLLIN, 0});
    const bool late = Clock::now() >= deadline;
    if (connections.empty() || late) break;
    if (::poll(entries.data(), entries.size(), milliseconds_until(deadline)) <= 0) continue;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents == 0) continue;
      const ssize_t received = ::recv(entries[i].fd, ignored.data(), ignored.size(), MSG_DONTWAIT);
      if (received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR)) connections[i]->close();
    }
  }
  for (ControlConnection* connection : connections) connection->close();
}

}  // namespace paceline
