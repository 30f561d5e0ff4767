// One TCP connection: to one rank, on one channel, after its handshake. Frames (message_header.h) go out from the
// sender's memory and come in to the receiver's, without a wait and without an allocation.
//
// Arrived bytes are read ahead into a small buffer, so that one system call takes many small messages; the bulk of a
// large one goes straight to its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/private_descriptor.h"
#include "transport/message_header.h"

namespace paceline {

class TcpConnection {
 public:
  enum class Flow : std::uint8_t {
    done,
    later,      // the kernel has no room, or no more bytes
    more,       // the next message may be behind inquiries that have yet to be read
    closed,     // by the other side, see error()
    malformed,  // what arrived is no frame, see problem()
  };

  // `socket` is connected and non-blocking. At most `queue_length` messages of collectives are queued at a time;
  // messages of pairs also take the place of the inquiry.
  TcpConnection(PrivateDescriptor socket, int queue_length);

  [[nodiscard]] int fd() const { return socket_.get(); }

  // ---- Out ----

  // Queue a message behind those before it; *unsent is counted down once the kernel has all of it.
  void push(const MessageHeader& header, const std::byte* data, std::uint32_t* unsent);
  // Queue an inquiry. Nothing happens where messages are queued: they tell the other side as much.
  void inquire(const Call& call);
  // Give the kernel what it takes. done: nothing is left. An inquiry that nobody reads any more is no failure.
  Flow flush();
  [[nodiscard]] bool idle() const { return queued_ == 0; }
  // Whether what is queued is an inquiry, and nothing else.
  [[nodiscard]] bool only_asks() const { return queued_ == 1 && queued(0).unsent == nullptr; }
  [[nodiscard]] bool full() const { return queued_ == queue_.size(); }
  // Whether a message that counts down `unsent` is queued.
  [[nodiscard]] bool holds(const std::uint32_t* unsent) const;

  // ---- In ----

  // The header of the next message, which stays the next until take(). Inquiries on the way are kept as asked(), those
  // of pairs as wants_answer(); it is not the other side that says for how long this reads them. `now`: the sequence
  // number of this rank's last collective.
  Flow peek(MessageHeader* header, std::uint32_t now);
  // The data of that message, to `place`. While `later`, call again; a part is already there.
  Flow take(std::byte* place);
  // The collective of the other side's last inquiry. Of a billion collectives ago it is not told: sequence numbers
  // wrap, so that it would one day look like a call to come.
  [[nodiscard]] const std::optional<Call>& asked(std::uint32_t now);
  // Whether the other side waits for a pair's message and has asked since the last time.
  [[nodiscard]] bool wants_answer() { return std::exchange(wants_answer_, false); }

  // ---- Why ----

  [[nodiscard]] int error() const { return error_; }  // errno of `closed`; 0: an orderly end
  [[nodiscard]] const Status& problem() const { return problem_; }

  // Whether the other side's kernel has yet to confirm bytes. Reads and drops what arrived: closing a socket that holds
  // unread bytes would take back those that are still on their way out.
  bool unconfirmed();

 private:
  struct Frame {
    EncodedHeader header;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;            // of header and data
    std::uint32_t* unsent = nullptr;  // null: an inquiry
  };

  [[nodiscard]] const Frame& queued(std::size_t position) const { return queue_[(first_ + position) % queue_.size()]; }
  Frame& queued(std::size_t position) { return queue_[(first_ + position) % queue_.size()]; }
  void push(const Frame& frame) { queued(queued_++) = frame; }
  void pop();
  Flow write_some();
  Flow read_ahead();
  Flow read(std::byte* to, std::size_t most, std::size_t* got);

  PrivateDescriptor socket_;

  std::vector<Frame> queue_;  // a ring
  std::size_t first_ = 0;
  std::size_t queued_ = 0;
  std::size_t written_ = 0;  // bytes of the first frame

  static constexpr std::size_t buffer_bytes = 16384;
  std::unique_ptr<std::byte[]> buffer_;
  std::size_t begin_ = 0;  // of what is in the buffer
  std::size_t end_ = 0;
  std::optional<MessageHeader> front_;
  std::size_t taken_ = 0;  // bytes of the front message
  std::optional<Call> asked_;
  bool wants_answer_ = false;
  std::uint32_t asked_at_ = 0;  // the sequence number of this rank's last collective then

  bool ended_ = false;  // nothing more comes. Who meets an error first takes it off the socket: it is read no more.
  int error_ = 0;
  Status problem_;
};

}  // namespace paceline
