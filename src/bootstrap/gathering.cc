// Rank 0's side of the rendezvous.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <list>
#include <optional>

#include "base/interrupted.h"
#include "base/log.h"
#include "bootstrap/deadline.h"
#include "bootstrap/handshake.h"
#include "bootstrap/member.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/socket.h"
#include "bootstrap/strangers.h"

namespace paceline {
namespace {

constexpr auto linger_time = std::chrono::milliseconds(500);  // to tell those still to come why the job fails
constexpr auto parting_time = std::chrono::milliseconds(300);
constexpr std::size_t most_strangers = 256;
constexpr auto lull = std::chrono::seconds(1);  // who would meet others tries again sooner

// A rank that has proved to know the secret, and whose Join has yet to come: it has until the deadline.
struct Newcomer {
  std::uint32_t rank;
  ControlConnection connection;
};

class Gathering {
 public:
  Gathering(const Rendezvous& where, PrivateDescriptor listener, Clock::time_point deadline)
      : where_(where),
        listener_(std::move(listener)),
        deadline_(deadline),
        size_(static_cast<std::uint32_t>(where.size)),
        present_(size_, false),
        strangers_(listener_.get(), where.secret, most_strangers) {
    assembly_.members.resize(size_);
    assembly_.connections.resize(size_);
    Member& self = assembly_.members[0] = this_member();
    self.address = host_of(local_address(listener_.get()));
    present_[0] = true;
  }

  Result<Assembly> run() {
    while (!over()) {
      for (ControlConnection& connection : assembly_.connections) connection.flush();
      for (ControlConnection& connection : refused_) connection.flush();
      sleep();
      if (failure_ || all_present()) continue;
      if (Clock::now() >= next_sign_) {
        give_sign();
        look_whether_in_vain();
      }
      if (Clock::now() >= deadline_)
        fail(others_since_ && deadline_ - others_last_ < lull ? meets_others() : absence_so_far(), deadline_);
    }
    if (!failure_) {
      // Now, that they know each other also if this process dies the next moment: they clean up behind it.
      for (ControlConnection& connection : assembly_.connections) connection.flush();
      return std::move(assembly_);
    }
    part();
    return Status(*failure_);
  }

 private:
  [[nodiscard]] bool all_present() const {
    return std::find(present_.begin(), present_.end(), false) == present_.end();
  }
  [[nodiscard]] std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::uint32_t rank = 0; rank < size_; ++rank)
      if (!present_[rank]) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }
  [[nodiscard]] bool over() const { return all_present() || (failure_ && Clock::now() >= linger_until_); }

  void sleep() {
    std::vector<pollfd> entries;
    for (const Newcomer& newcomer : newcomers_) entries.push_back({newcomer.connection.fd(), POLLIN, 0});
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 1; rank < size_; ++rank) {
      const ControlConnection& connection = assembly_.connections[rank];
      if (!connection.open()) continue;
      entries.push_back({connection.fd(), connection.events(), 0});
      ranks.push_back(rank);
    }
    strangers_.add_to(entries);
    const Clock::time_point until =
        strangers_.next_end(failure_ ? linger_until_ : std::min<Clock::time_point>(deadline_, next_sign_));
    const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(until));
    if (ready <= 0 && interrupted()) fail(own_error(0, Status(Code::aborted, "it was interrupted")).detail());

    std::size_t position = 0;
    std::erase_if(newcomers_, [&](Newcomer& one) { return entries[position++].revents != 0 && !await_join(one); });
    for (const std::uint32_t rank : ranks)
      if ((entries[position++].revents & ~POLLOUT) != 0) listen_to(rank);
    const Status status = strangers_.serve(
        entries,
        [this](const Hello& hello, PrivateDescriptor socket, std::uint64_t) { introduced(hello, std::move(socket)); },
        [this](const Status& why, bool opened) { dropped(why, opened); });
    if (!status.ok()) fail(own_error(0, status).detail(), Clock::now());
  }

  // The others would not know whether it is this rank that is gone.
  void give_sign() {
    const Frame sign = make_frame(Arrival{0, assembly_.members[0]});
    for (ControlConnection& connection : assembly_.connections)
      if (connection.flushed()) connection.queue(sign);
    next_sign_ = Clock::now() + sign_of_life;
  }

  void look_whether_in_vain() {
    if (where_.why_not)
      if (const Status why = where_.why_not(missing()); !why.ok()) return fail(why.detail());
    // Whoever has tried for so long has given up by now.
    if (others_since_ && others_last_ - *others_since_ > other_meeting_time - lull &&
        Clock::now() - others_last_ > lull)
      fail(meets_others());
  }
  [[nodiscard]] Status::Detail meets_others() const {
    return own_error(0, Status(Code::invalid_usage, where_.other_meeting)).detail();
  }

  void introduced(const Hello& hello, PrivateDescriptor socket) {
    if (hello.kind != control_connection) return;
    newcomers_.push_back({hello.rank, ControlConnection(std::move(socket))});
    if (!await_join(newcomers_.back())) newcomers_.pop_back();
  }

  void dropped(const Status& why, bool opened) {
    log(LogLevel::info, 0, "rendezvous: connection dropped: {}", why.message());
    if (why.code() == Code::remote || !opened) return;
    // Worth telling should the job fail: one of ours that was started wrongly, not a stranger.
    if (where_.other_meeting.empty()) {
      rejected_ = why.message();
    } else {
      const auto now = Clock::now();
      if (!others_since_ || now - others_last_ > lull) others_since_ = now;
      others_last_ = now;
    }
  }

  // Whether it remains a newcomer.
  bool await_join(Newcomer& newcomer) {
    std::vector<ControlMessage> messages;
    const Status status = newcomer.connection.receive(messages);
    if (messages.empty()) return status.ok();
    const auto* join = std::get_if<Join>(&messages.front());
    if (join == nullptr) return false;
    welcome(newcomer.rank, *join, std::move(newcomer.connection));
    if (!status.ok() && !failure_) died(newcomer.rank, status);
    return false;
  }

  void welcome(std::uint32_t rank, const Join& join, ControlConnection connection) {
    Member member = join.member;
    member.address = host_of(peer_address(connection.fd()));
    std::string& mine = assembly_.members[0].address;
    if (mine == "0.0.0.0" || mine == "::") mine = host_of(local_address(connection.fd()));
    if (failure_) {
      connection.queue(make_frame(Refusal{*failure_}));
      refused_.push_back(std::move(connection));
      if (rank < size_) present_[rank] = true;
    } else if (join.size != size_ || rank >= size_) {
      refused_.push_back(std::move(connection));
      if (rank < size_) present_[rank] = true;
      fail(other_size(rank, join.size, member));
    } else if (present_[rank]) {
      refused_.push_back(std::move(connection));
      fail(claimed_twice(rank, assembly_.members[rank], member));
    } else {
      present_[rank] = true;
      assembly_.members[rank] = member;
      assembly_.connections[rank] = std::move(connection);
      const Frame news = make_frame(Arrival{rank, member});
      for (std::uint32_t other = 0; other < size_; ++other) {
        if (!present_[other]) continue;
        assembly_.connections[other].queue(news);
        if (other != rank) assembly_.connections[rank].queue(make_frame(Arrival{other, assembly_.members[other]}));
      }
    }
  }

  void listen_to(std::uint32_t rank) {
    std::vector<ControlMessage> messages;
    const Status status = assembly_.connections[rank].receive(messages);
    for (ControlMessage& message : messages) {
      if (const auto* refusal = std::get_if<Refusal>(&message))
        fail(with_suspect(refusal->reason), Clock::now());
      else
        assembly_.early.emplace_back(rank, std::move(message));
    }
    if (status.ok()) return;
    if (failure_)
      assembly_.connections[rank].close();
    else
      died(rank, status);
  }

  void died(std::uint32_t rank, const Status& status) {
    const Member& member = assembly_.members[rank];
    assembly_.connections[rank].close();
    Status::Detail detail;
    detail.code = Code::remote;
    const bool unreachable = status.detail().system_errno != 0;  // which is not to say that it died
    detail.message = fmt::format("{} {} during the rendezvous: {}", named(static_cast<int>(rank), member),
                                 unreachable ? "was lost" : "died", status.message());
    detail.rank = static_cast<int>(rank);
    detail.host = member.host;
    fail(std::move(detail));
  }

  // The job cannot start. Ranks that come later are told too, until `linger_until`.
  void fail(Status::Detail reason, Clock::time_point linger_until = Clock::now() + linger_time) {
    if (failure_) return;
    failure_ = std::move(reason);
    linger_until_ = linger_until;
    const Frame frame = make_frame(Refusal{*failure_});
    for (ControlConnection& connection : assembly_.connections) connection.queue(frame);
    for (ControlConnection& connection : refused_) connection.queue(frame);
  }

  void part() {
    std::vector<ControlConnection*> open;
    for (auto* connections : {&assembly_.connections, &refused_})
      for (ControlConnection& connection : *connections) {
        connection.flush();
        connection.finish();
        open.push_back(&connection);
      }
    drain(std::move(open), Clock::now() + parting_time);
  }

  [[nodiscard]] Status::Detail absence_so_far() const {
    return with_suspect(absence(missing(), "the rendezvous", where_.timeout));
  }
  // Whoever was turned away may be the one that is missing.
  [[nodiscard]] Status::Detail with_suspect(Status::Detail detail) const {
    if (!rejected_.empty()) detail.message += fmt::format(" (a connection was dropped: {})", rejected_);
    return detail;
  }

  [[nodiscard]] Status::Detail other_size(std::uint32_t rank, std::uint32_t size, const Member& member) const;
  static Status::Detail claimed_twice(std::uint32_t rank, const Member& first, const Member& second);

  const Rendezvous& where_;
  PrivateDescriptor listener_;
  const Clock::time_point deadline_;
  const std::uint32_t size_;
  std::vector<bool> present_;
  Assembly assembly_;
  Strangers strangers_;
  Clock::time_point next_sign_ = Clock::now() + sign_of_life;
  std::list<Newcomer> newcomers_;
  std::string rejected_;
  std::optional<Clock::time_point> others_since_;  // who would meet others have come
  Clock::time_point others_last_;
  std::optional<Status::Detail> failure_;
  Clock::time_point linger_until_;
  std::vector<ControlConnection> refused_;
};

Status::Detail Gathering::other_size(std::uint32_t rank, std::uint32_t size, const Member& member) const {
  Status::Detail detail;
  detail.code = Code::invalid_usage;
  detail.message = fmt::format("{} was started as one of {} ranks, {} as one of {}: give all the same size",
                               named(static_cast<int>(rank), member), size, named(0, assembly_.members[0]), size_);
  detail.rank = static_cast<int>(rank);
  detail.host = member.host;
  return detail;
}

Status::Detail Gathering::claimed_twice(std::uint32_t rank, const Member& first, const Member& second) {
  Status::Detail detail;
  detail.code = Code::invalid_usage;
  detail.message = fmt::format("rank {} is claimed twice: by pid {} on {} and by pid {} on {}", rank, first.pid,
                               first.host, second.pid, second.host);
  detail.rank = static_cast<int>(rank);
  detail.host = second.host;
  return detail;
}

}  // namespace

Result<Assembly> gather(const Rendezvous& where, PrivateDescriptor listener) {
  const auto deadline = after(where.timeout);
  if (!listener.valid()) {
    Result<FileDescriptor> made = listen_at(where.address, where.port, deadline);
    PACE_TRY(made.status());
    listener = PrivateDescriptor(std::move(*made));
  }
  return Gathering(where, std::move(listener), deadline).run();
}

}  // namespace paceline
