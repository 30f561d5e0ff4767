// The TCP transport, for ranks that share no memory: one connection for each pair of ranks and channel (tcp_mesh.h),
// on which frames follow one another (tcp_connection.h).
//
// A message that the kernel does not take at once stays queued, by reference, and leaves in progress(). One that
// arrives early stays in the kernel's buffer; when that is full, the sender's queue waits: nothing is dropped, and no
// memory grows.
//
// Two ranks that both wait, in different calls, learn it from inquiries: who waits long sends the other side its call,
// and, when asked from an earlier call, answers so. Who ends a call without a message sends one, too. A receive of a
// pair asks only where a collective's message has come before its own; the answer tells that its own does not.
#pragma once

#include <memory>
#include <vector>

#include "transport/tcp_connection.h"
#include "transport/tcp_mesh.h"
#include "transport/transport.h"

namespace paceline {

class TcpTransport final : public Transport {
 public:
  // Collective over the group's ranks; ends at the deadline with an error that names a rank.
  static Result<std::unique_ptr<TcpTransport>> connect(TcpListener listener, TcpGroup group, const Until& until);
  // After success, waits a second at most until what was sent has reached the other hosts.
  ~TcpTransport() override;

  [[nodiscard]] std::string_view name() const override { return "tcp"; }
  Attempt send(int channel, std::span<const int> to, const Call& call, std::span<const std::byte> data,
               bool stays = false, bool to_all = false) override;
  [[nodiscard]] std::uint64_t sent(int channel) override;
  // The data always comes to `place`.
  Attempt receive(int channel, int from, const Call& call, std::size_t bytes, std::byte* place, const std::byte** data,
                  bool to_all = false) override;
  Attempt release(int, int, bool = false) override { return Attempt::done; }
  [[nodiscard]] int holder(int channel, std::span<const int> to, const Call& call, bool to_all = false) override;
  Attempt progress() override;
  void sleep(double microseconds) override;
  void announce(const Call& call) override;
  Attempt compare(int from, const Call& call, bool owed = true) override;
  [[nodiscard]] Status untaken() override;
  [[nodiscard]] Status failure() const override { return failure_; }

 private:
  // One rank's connection on one channel.
  struct Line {
    TcpConnection connection;
    std::size_t peer;                // in group_.peers
    bool flushing = false;           // is in flushing_
    std::optional<Call> asked = {};  // the call of the last inquiry sent
  };
  // The messages under way on one channel.
  struct Lane {
    // Those of collectives, numbered from 0: unsent[m % room] connections have yet to take message m.
    std::uint64_t accepted = 0;
    std::uint64_t sent = 0;
    std::vector<std::uint32_t> unsent;
    // Those of pairs, which are taken in no common order: each connection has room of its own for them.
    std::uint64_t pair_messages = 0;
    std::uint32_t pair_unsent = 0;
  };

  TcpTransport(TcpGroup group, std::vector<PrivateDescriptor> sockets);
  Status watch();
  Line& line(int channel, int rank);
  static std::uint64_t sent_of_collectives(Lane& lane);
  Attempt send_to(Line& line, const Call& call, std::span<const std::byte> data, std::uint32_t* unsent);
  Attempt flush(Line& line, const Call& call);
  void note(const Call& call);
  Attempt fail(Status reason);
  Attempt lost(Line& line, const Call& call);
  Attempt malformed(const Line& line);
  bool asks_from_another(Line& line, const Call& call);
  Attempt announce(Line& line, const Call& call);
  Attempt find_passed(int from, const Call& call);
  Attempt find_overtaken(int from, const Call& call);
  Attempt mismatched(const Line& line, const Call& mine, const Call& theirs);

  TcpGroup group_;
  std::vector<std::size_t> position_;  // of each rank in group_.peers
  std::vector<Line> lines_;            // as connect_peers() numbers them
  std::vector<Lane> lanes_;
  std::vector<Line*> flushing_;   // lines with messages queued
  FileDescriptor watch_;          // epoll, edge-triggered: data that waits for a later receive wakes only once
  Call latest_;                   // of the last send, for failures in progress()
  std::uint32_t collective_ = 0;  // sequence number of the last collective
  std::uint32_t announced_ = 0;   // calls
  Status failure_;
};

}  // namespace paceline
