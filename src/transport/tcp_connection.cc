#include "transport/tcp_connection.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace paceline {

TcpConnection::TcpConnection(PrivateDescriptor socket, int queue_length)
    : socket_(std::move(socket)),
      queue_(static_cast<std::size_t>(queue_length) + 1),  // and one inquiry
      buffer_(new std::byte[buffer_bytes]) {}

void TcpConnection::push(const MessageHeader& header, const std::byte* data, std::uint32_t* unsent) {
  push(Frame{encode(header), data, message_header_bytes + header.length, unsent});
}

void TcpConnection::inquire(const Call& call) {
  if (idle()) push(Frame{encode({MessageKind::inquiry, 0, call}), nullptr, message_header_bytes, nullptr});
}

bool TcpConnection::holds(const std::uint32_t* unsent) const {
  for (std::size_t i = 0; i < queued_; ++i)
    if (queued(i).unsent == unsent) return true;
  return false;
}

void TcpConnection::pop() {
  if (std::uint32_t* unsent = queued(0).unsent) --*unsent;
  first_ = (first_ + 1) % queue_.size();
  --queued_;
  written_ = 0;
}

TcpConnection::Flow TcpConnection::flush() {
  while (!idle()) {
    const Flow flow = write_some();
    if (flow == Flow::closed && only_asks()) {
      pop();  // the other side may have left in peace, its last message still to be read here
      return Flow::done;
    }
    if (flow != Flow::done) return flow;
  }
  return Flow::done;
}

TcpConnection::Flow TcpConnection::write_some() {
  constexpr std::size_t most_frames = 8;
  iovec pieces[2 * most_frames];
  std::size_t count = 0;
  std::size_t skip = written_;
  for (std::size_t i = 0; i < std::min(queued_, most_frames); ++i) {
    Frame& frame = queued(i);
    const std::size_t of_header = std::min(skip, message_header_bytes);
    const std::size_t of_data = skip - of_header;
    if (of_header < message_header_bytes)
      pieces[count++] = {frame.header.data() + of_header, message_header_bytes - of_header};
    if (const std::size_t left = frame.bytes - message_header_bytes - of_data; left > 0)
      pieces[count++] = {const_cast<std::byte*>(frame.data) + of_data, left};
    skip = 0;
  }
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  const ssize_t sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (errno == EINTR) return Flow::done;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Flow::later;
    error_ = errno;
    return Flow::closed;
  }
  written_ += static_cast<std::size_t>(sent);
  while (queued_ > 0 && written_ >= queued(0).bytes) {
    const std::size_t beyond = written_ - queued(0).bytes;
    pop();
    written_ = beyond;
  }
  return Flow::done;
}

TcpConnection::Flow TcpConnection::read(std::byte* to, std::size_t most, std::size_t* got) {
  while (!ended_) {
    const ssize_t arrived = ::recv(fd(), to, most, MSG_DONTWAIT);
    if (arrived > 0) {
      *got = static_cast<std::size_t>(arrived);
      return Flow::done;
    }
    if (arrived < 0 && errno == EINTR) continue;
    if (arrived < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Flow::later;
    ended_ = true;
    error_ = arrived < 0 ? errno : 0;
  }
  return Flow::closed;
}

TcpConnection::Flow TcpConnection::read_ahead() {
  std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);  // less than a header
  end_ -= begin_;
  begin_ = 0;
  std::size_t got = 0;
  const Flow flow = read(buffer_.get() + end_, buffer_bytes - end_, &got);
  end_ += got;
  return flow;
}

TcpConnection::Flow TcpConnection::peek(MessageHeader* header, std::uint32_t now) {
  constexpr int most_reads = 8;  // of 512 inquiries each
  for (int reads = 0; !front_;) {
    if (!problem_.ok()) return Flow::malformed;
    if (end_ - begin_ < message_header_bytes) {
      if (reads++ == most_reads) return Flow::more;
      if (const Flow flow = read_ahead(); flow != Flow::done) return flow;
      continue;
    }
    auto decoded =
        decode(std::span<const std::byte, message_header_bytes>(buffer_.get() + begin_, message_header_bytes));
    if (!decoded.ok()) {
      problem_ = decoded.status();
      return Flow::malformed;
    }
    begin_ += message_header_bytes;
    if (decoded->kind == MessageKind::inquiry && !is_collective(decoded->call)) {
      wants_answer_ = true;
    } else if (decoded->kind == MessageKind::inquiry) {
      asked_ = decoded->call;
      asked_at_ = now;
    } else {
      front_ = *decoded;
      taken_ = 0;
    }
  }
  *header = *front_;
  return Flow::done;
}

const std::optional<Call>& TcpConnection::asked(std::uint32_t now) {
  constexpr std::uint32_t recent = 1U << 30;
  if (now - asked_at_ >= recent) asked_.reset();
  return asked_;
}

TcpConnection::Flow TcpConnection::take(std::byte* place) {
  // Below this a message is read into the buffer, together with what follows it, and copied.
  constexpr std::size_t large = buffer_bytes / 2;
  while (taken_ < front_->length) {
    const std::size_t left = front_->length - taken_;
    if (begin_ < end_) {
      const std::size_t here = std::min(left, end_ - begin_);
      std::memcpy(place + taken_, buffer_.get() + begin_, here);
      begin_ += here;
      taken_ += here;
    } else if (left >= large) {
      std::size_t got = 0;
      if (const Flow flow = read(place + taken_, left, &got); flow != Flow::done) return flow;
      taken_ += got;
    } else if (const Flow flow = read_ahead(); flow != Flow::done) {
      return flow;
    }
  }
  front_.reset();
  return Flow::done;
}

bool TcpConnection::unconfirmed() {
  std::size_t got = 0;
  Flow flow = Flow::done;
  for (int i = 0; i < 64 && flow == Flow::done; ++i) flow = read(buffer_.get(), buffer_bytes, &got);
  int bytes = 0;
  return flow != Flow::closed && ::ioctl(fd(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace paceline
