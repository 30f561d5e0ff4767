// One control connection after its handshake: messages in, frames out, never blocking.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "base/private_descriptor.h"
#include "bootstrap/control_message.h"

namespace paceline {

// Encoded once, for however many connections.
using Frame = std::shared_ptr<const Bytes>;
Frame make_frame(const ControlMessage& message);

class ControlConnection {
 public:
  ControlConnection() = default;
  explicit ControlConnection(PrivateDescriptor fd) : fd_(std::move(fd)) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool open() const { return fd_.valid(); }
  [[nodiscard]] bool flushed() const { return output_.empty(); }
  [[nodiscard]] short events() const;  // what to poll for

  void queue(Frame frame);  // sent by flush(); nothing if closed
  void flush();             // as much as the socket takes; an error shows in receive()
  // Adds messages that have come, of a few hundred KiB at most: it is not the other side that says for how long this
  // reads. Code::remote when that has ended the connection or sends what is no message; the messages before it have
  // been added.
  Status receive(std::vector<ControlMessage>& into);

  void finish();  // nothing more will be sent: the other side reads an end
  void close();

 private:
  PrivateDescriptor fd_;
  FrameReader reader_;
  std::deque<Frame> output_;
  std::size_t sent_ = 0;  // bytes of output_.front()
  int send_error_ = 0;    // errno of the send that failed
};

// After finish(): waits until the other sides have read everything and closed, or until the deadline, then closes all.
// Closing at once could take back what has not been read yet.
void drain(std::vector<ControlConnection*> connections, Clock::time_point deadline);

}  // namespace paceline
