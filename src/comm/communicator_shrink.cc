// Going on without some ranks: a new session, and in it a communicator, of those that stay.
//
// They meet without their old communicator, which may have ended. Every rank has listened for that since it was made,
// and all know where: the first of those that stay gathers the others, as rank 0 of a job does.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/configuration.h"
#include "base/hash.h"
#include "base/index.h"
#include "bootstrap/deadline.h"
#include "bootstrap/member.h"
#include "bootstrap/socket.h"
#include "comm/communicator.h"
#include "transport/segment.h"

namespace paceline {
namespace {

constexpr auto knocking_time = std::chrono::milliseconds(50);
constexpr int most_knocks = 16;  // at one time: whoever gathers serves others meanwhile
// Between two times, longer and longer: each leaves a connection that nobody takes.
constexpr auto first_pause = std::chrono::milliseconds(500), longest_pause = std::chrono::milliseconds(4000);

// One that stays.
struct Survivor {
  int number = 0;  // among them
  int in_session = 0;
  Member member;
  int port = 0;  // on which it has listened from the beginning, and does until it ends; 0: it could not
};

Status::Detail about(const Survivor& one, std::string_view what) {
  Status::Detail detail;
  detail.code = Code::remote;
  detail.message = fmt::format("{} {}", named(one.number, one.member), what);
  detail.rank = one.number;
  detail.host = one.member.host;
  return detail;
}

// Those that stay, while they meet.
class Survivors {
 public:
  Survivors(const Session& session, std::vector<Survivor> all) : session_(session), all_(std::move(all)) {}

  [[nodiscard]] const Survivor& operator[](int number) const { return all_[at(number)]; }
  [[nodiscard]] int size() const { return static_cast<int>(all_.size()); }

  // Whether one of these will not come: the session has lost it, or where that has nobody left to tell, nobody listens
  // where it has always done.
  [[nodiscard]] Status loss_among(const std::vector<int>& missing) {
    if (!found_.ok()) return found_;
    for (const int number : missing)
      if (const auto how = session_.loss_of(all_[at(number)].in_session)) return Status(about(all_[at(number)], *how));
    if (Clock::now() < next_time_) return {};
    next_time_ = Clock::now() + pause_;
    pause_ = std::min(2 * pause_, longest_pause);
    for (int i = 0; i < std::min<int>(most_knocks, static_cast<int>(missing.size())); ++i) {
      const Survivor& one = all_[at(missing[next_++ % missing.size()])];
      if (!listens(one))
        return found_ = Status(about(one, "has ended, or closed the communicator: nobody listens where it did"));
    }
    return {};
  }

 private:
  static bool listens(const Survivor& one) {
    if (one.port == 0) return true;
    const auto fd = connect_to(one.member.address, one.port, Clock::now() + knocking_time);
    return fd.ok() || fd.status().detail().system_errno != ECONNREFUSED;
  }

  const Session& session_;
  const std::vector<Survivor> all_;
  Status found_;          // by knocking
  std::size_t next_ = 0;  // to knock at
  Clock::time_point next_time_ = Clock::now() + first_pause;
  std::chrono::milliseconds pause_ = first_pause;
};

// Tells those who stay from others, who may come to the same place.
std::uint64_t mark_of(const std::vector<int>& staying) {
  std::uint64_t mark = empty_hash;
  for (const int rank : staying) mark = add_to_hash(mark, static_cast<std::uint64_t>(rank));
  return mark;
}

// An error among those that stay, for the communicator that they come from.
Status renumbered(const Status& status, const std::vector<int>& staying) {
  Status::Detail detail = status.detail();
  for (int* const rank : {&detail.rank, &detail.peer})
    if (*rank >= 0 && at(*rank) < staying.size()) *rank = staying[at(*rank)];
  detail.message = fmt::format("going on with {}, from now on numbered from 0: {}", listed(staying), detail.message);
  return Status(std::move(detail));
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::shrink(std::span<const int> excluded,
                                                           const CommunicatorOptions& options) {
  for (const int one : excluded) {
    if (one < 0 || one >= size())
      return Status(Code::invalid_argument, fmt::format("excluded rank {} is none of {} ranks", one, size()));
    if (one == rank())
      return Status(Code::invalid_argument,
                    fmt::format("rank {} is among the excluded ranks, which do not call it", one));
  }
  std::vector<int> staying;
  for (int r = 0; r < size(); ++r)
    if (std::ranges::find(excluded, r) == excluded.end()) staying.push_back(r);
  CommunicatorOptions chosen = options;
  // Who is alive and busy is waited for as in a call.
  if (chosen.join_timeout == 0) chosen.join_timeout = std::max(configuration().join_timeout, options_.timeout);
  auto made = staying.size() == 1 ? create(alone(), chosen) : shrink_to(staying, chosen);
  if (made.ok()) return made;
  Segment::unlink_left_behind();
  return renumbered(made.status(), staying);
}

Result<std::unique_ptr<Communicator>> Communicator::shrink_to(const std::vector<int>& staying,
                                                              const CommunicatorOptions& options) {
  const std::uint32_t aborts = aborts_.load(std::memory_order_relaxed);  // only asked whether there is one more
  auto session = meet_again(staying, options.join_timeout, aborts);
  PACE_TRY(session.status());
  auto made = first_of(*session, options);
  const Making making(*this, *made, aborts);
  std::vector<int> gpus;
  for (const int r : staying)
    if (topology_ != nullptr) gpus.push_back(gpus_[at(r)]);
  made->follow(topology_, std::move(gpus));
  PACE_TRY(made->connect_first());
  // Nobody begins until all have it: those that have not would go on without those that have.
  PACE_TRY((*session)->exchange({}, after(options.join_timeout), made->membership_.get()).status());
  made->look_behind_calls();
  return made;
}

Result<std::shared_ptr<Session>> Communicator::meet_again(const std::vector<int>& staying, double timeout,
                                                          std::uint32_t aborts) {
  std::vector<Survivor> all;
  for (const int r : staying) {
    const int in_session = session_ranks_[at(r)];
    all.push_back({static_cast<int>(all.size()), in_session, session_->members()[at(in_session)],
                   static_cast<int>(connections_.meeting_ports[at(r)])});
  }
  Survivors survivors(*session_, std::move(all));
  if (survivors[0].port == 0)
    return Status(about(survivors[0], "could not listen for the others when the communicator was made"));

  Rendezvous where;
  where.rank = static_cast<int>(std::ranges::find(staying, rank()) - staying.begin());
  where.size = survivors.size();
  where.address = survivors[0].member.address;
  where.port = survivors[0].port;
  where.secret = fmt::format("{}/{:x}/{:x}", session_->secret(), id_, mark_of(staying));
  where.other_meeting = "some rank does not exclude the same ones: all that go on must";
  where.timeout = timeout;
  if (where.rank == 0) {
    // Its own goes on listening: who finds that nobody does takes the rank for dead.
    FileDescriptor listener(::fcntl(connections_.meeting->fd(), F_DUPFD_CLOEXEC, 0));
    if (!listener.valid()) return own_error(0, descriptor_error("cannot listen for the other ranks", errno));
    where.listener = PrivateDescriptor(std::move(listener));
  }
  where.why_not = [&, self = where.rank](const std::vector<int>& missing) {
    if (aborts_.load(std::memory_order_relaxed) == aborts) return survivors.loss_among(missing);
    Status::Detail detail = about(survivors[self], "gave it up: its communicator was aborted");
    detail.code = Code::aborted;
    return Status(std::move(detail));
  };
  return join(std::move(where));
}

}  // namespace paceline
