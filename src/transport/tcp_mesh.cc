#include "transport/tcp_mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <system_error>
#include <thread>

#include "base/signals_blocked.h"
#include "bootstrap/socket.h"
#include "bootstrap/strangers.h"

namespace paceline {
namespace {

constexpr std::size_t spare_strangers = 64;            // above those that may all be of ranks
constexpr auto pause = std::chrono::milliseconds(10);  // before connecting again

class Mesh {
 public:
  Mesh(TcpListener listener, const TcpGroup& group, const Until& until)
      : listener_(std::move(listener)),
        group_(group),
        until_(until),
        sockets_(group.peers.size() * static_cast<std::size_t>(group.channels)),
        numbers_(sockets_.size()),
        strangers_(listener_.fd(), group.secret, sockets_.size() + spare_strangers) {}

  Result<std::vector<PrivateDescriptor>> make() {
    news_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    in_vain_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!news_.valid() || !in_vain_.valid()) return with_need(descriptor_error("cannot make an eventfd", errno));
    std::thread connecting;
    try {
      const SignalsBlocked blocked;
      connecting = std::thread([this] { connect_higher(); });
    } catch (const std::system_error& error) {
      return Status::system("cannot start a thread", error.code().value());
    }
    ::pthread_setname_np(connecting.native_handle(), "pace-connecting");
    Status accepted = unless_scarce([this] { return accept_lower(); });
    // At the deadline the other side ends by itself, and says for whom it waited.
    const bool late = accepted.code() == Code::timeout;
    if (!late) ::eventfd_write(in_vain_.get(), 1);
    connecting.join();
    // What this rank lacks may be the reason for all else; what went wrong with a peer says more than who is missing.
    if (!late) PACE_TRY(accepted);
    PACE_TRY(connected_);
    PACE_TRY(accepted);
    return std::move(sockets_);
  }

 private:
  // The thread must be waited for, whatever is lacking; and it takes no exception.
  template <class Work>
  Status unless_scarce(Work work) const {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      return scarcity_;
    }
  }

  [[nodiscard]] std::size_t place(int channel, std::size_t peer) const {
    return static_cast<std::size_t>(channel) * group_.peers.size() + peer;
  }
  PrivateDescriptor& socket(int channel, std::size_t peer) { return sockets_[place(channel, peer)]; }

  // Where the connecting side is, as it says itself; but `alone` is the accepting side's answer to `cramped`.
  enum class Connecting : std::uint8_t {
    at_work,
    cramped,  // it lacks a descriptor: strangers must make way
    alone,    // it lacks one although no strangers are here, and none are let in
    ended,
    failed,
  };

  // ---- Connecting; in a thread of its own. It writes connected_ and the sockets of higher ranks, no others. ----

  void connect_higher() {
    connected_ = unless_scarce([this]() -> Status {
      for (int channel = 0; channel < group_.channels; ++channel)
        for (std::size_t i = 0; i < group_.peers.size(); ++i)
          if (group_.peers[i].rank > group_.rank) PACE_TRY(connect(group_.peers[i], channel, &socket(channel, i)));
      return {};
    });
    tell(connected_.ok() ? Connecting::ended : Connecting::failed);
  }

  void tell(Connecting where) {
    // Relaxed: who is woken by the system call sees it.
    if (connecting_.exchange(where, std::memory_order_relaxed) != where) ::eventfd_write(news_.get(), 1);
  }

  Status connect(const TcpPeer& peer, int channel, PrivateDescriptor* result) {
    for (;;) {
      const bool alone = connecting_.load(std::memory_order_relaxed) == Connecting::alone;  // orders nothing
      Status status = try_to_connect(peer, channel, result);
      if (status.ok()) return status;
      const bool passes = lacks_descriptors(status) ? !alone : is_of_a_crowd(status);
      if (!passes || Clock::now() + pause >= until_.deadline) return no_connection(peer, status);
      if (wait_for(in_vain_.get(), POLLIN, Clock::now() + pause).ok()) return no_connection(peer, status);
    }
  }

  Status try_to_connect(const TcpPeer& peer, int channel, PrivateDescriptor* result) {
    const Until until(until_.deadline, in_vain_.get());
    auto socket = connect_to(peer.address, peer.port, until);
    tell(!socket.ok() && lacks_descriptors(socket.status()) ? Connecting::cramped : Connecting::at_work);
    if (!socket.ok()) return with_need(socket.status());
    const Hello hello{data_connection, static_cast<std::uint32_t>(group_.rank), static_cast<std::uint32_t>(channel),
                      group_.id};
    PACE_TRY(introduce(socket->get(), group_.secret, hello, until));
    *result = std::move(*socket);
    return {};
  }

  // The other side had no room just now. Where nobody listens, nobody will: it listened before it told its port.
  static bool is_of_a_crowd(const Status& status) {
    return status.code() == Code::remote || (may_pass(status) && status.detail().system_errno != ECONNREFUSED);
  }

  static bool lacks_descriptors(const Status& error) {
    return error.detail().system_errno == EMFILE || error.detail().system_errno == ENFILE;
  }

  // An error about descriptors is this rank's, and says how many would be enough.
  [[nodiscard]] Status with_need(const Status& status) const {
    if (!lacks_descriptors(status)) return status;
    Status::Detail detail = status.detail();
    detail.message += fmt::format(" (this communicator needs {} connections on this rank)", sockets_.size());
    detail.rank = group_.rank;
    detail.host = group_.host;
    return Status(std::move(detail));
  }

  // About the peer, unless this system would not even try.
  Status no_connection(const TcpPeer& peer, const Status& status) const {
    Status::Detail detail = status.detail();
    const bool own = detail.code == Code::system && !may_pass(status);
    if (detail.code == Code::system && !own) detail.code = Code::remote;
    detail.rank = own ? group_.rank : peer.rank;
    detail.peer = own ? peer.rank : group_.rank;
    detail.host = own ? group_.host : peer.host;
    detail.message = fmt::format("no data connection to rank {} ({}): {}", peer.rank, peer.host, detail.message);
    return Status(std::move(detail));
  }

  // ---- Accepting ----

  std::size_t awaited() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < sockets_.size(); ++i)
      count += group_.peers[i % group_.peers.size()].rank < group_.rank && !sockets_[i].valid();
    return count;
  }

  // Until every lower rank is there and the connecting side has ended.
  Status accept_lower() {
    std::vector<pollfd> polled;
    for (;;) {
      Connecting connecting = connecting_.load(std::memory_order_relaxed);  // it wakes us when it has changed
      if (connecting == Connecting::failed || (connecting == Connecting::ended && awaited() == 0)) return {};
      if (Clock::now() >= until_.deadline) return timed_out();
      strangers_.make_way(connecting == Connecting::cramped || connecting == Connecting::alone);
      if (connecting == Connecting::cramped && strangers_.empty())
        connecting_.compare_exchange_strong(connecting, Connecting::alone, std::memory_order_relaxed);
      polled.assign({{news_.get(), POLLIN, 0}, {until_.given_up, POLLIN, 0}});
      strangers_.add_to(polled);
      const Clock::time_point until = strangers_.next_end(until_.deadline);
      if (::poll(polled.data(), polled.size(), milliseconds_until(until)) < 0 && errno != EINTR)
        return Status::system("cannot wait for connections", errno);
      if (polled[1].revents != 0) return Status(Code::aborted, "the connecting was given up");
      if (eventfd_t news = 0; polled[0].revents != 0) ::eventfd_read(news_.get(), &news);
      const Status status = strangers_.serve(
          polled,
          [this](const Hello& hello, PrivateDescriptor accepted, std::uint64_t number) {
            welcome(hello, std::move(accepted), number);
          },
          [this](const Status& why, bool) { last_refusal_ = why; });
      if (!status.ok()) return with_need(status);
    }
  }

  void welcome(const Hello& hello, PrivateDescriptor accepted, std::uint64_t number) {
    if (hello.kind != data_connection || hello.group != group_.id) return;
    if (hello.channel >= static_cast<std::uint32_t>(group_.channels)) return;
    for (std::size_t i = 0; i < group_.peers.size(); ++i) {
      const int rank = group_.peers[i].rank;
      if (rank >= group_.rank || static_cast<std::uint32_t>(rank) != hello.rank) continue;
      // Who opens another connection has given up the one before: the last stands, whichever is heard last.
      std::uint64_t& stands = numbers_[place(static_cast<int>(hello.channel), i)];
      if (number < stands) return;
      stands = number;
      socket(static_cast<int>(hello.channel), i) = std::move(accepted);
      return;
    }
  }

  Status timed_out() const {
    Status::Detail detail;
    detail.code = Code::timeout;
    std::string missing;
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      const TcpPeer& peer = group_.peers[i % group_.peers.size()];
      if (peer.rank > group_.rank || sockets_[i].valid()) continue;
      if (detail.rank < 0) detail.rank = peer.rank, detail.host = peer.host;
      const std::string name = fmt::format("{}rank {} ({})", missing.empty() ? "" : ", ", peer.rank, peer.host);
      if (missing.find(fmt::format("rank {} (", peer.rank)) == std::string::npos) missing += name;
    }
    detail.peer = group_.rank;
    detail.message = missing.empty() ? "connecting to the other ranks took too long"
                                     : fmt::format("{} did not open all data connections to rank {} ({}) in time",
                                                   missing, group_.rank, group_.host);
    if (!last_refusal_.ok()) detail.message += "; a connection was dropped: " + last_refusal_.message();
    return Status(std::move(detail));
  }

  TcpListener listener_;
  const TcpGroup& group_;
  Until until_;
  std::vector<PrivateDescriptor> sockets_;
  std::vector<std::uint64_t> numbers_;  // of the accepted ones among the connections accepted
  Strangers strangers_;
  Status last_refusal_;
  const Status scarcity_ = Status::system("connecting to the other ranks", ENOMEM);  // while there is memory for it

  std::atomic<Connecting> connecting_{Connecting::at_work};
  FileDescriptor news_;     // becomes readable when the connecting side has changed it
  FileDescriptor in_vain_;  // becomes readable: what the connecting side does is not wanted any more
  Status connected_;
};

}  // namespace

Result<std::vector<PrivateDescriptor>> connect_peers(TcpListener listener, const TcpGroup& group, const Until& until) {
  return Mesh(std::move(listener), group, until).make();
}

}  // namespace paceline
