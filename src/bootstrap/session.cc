#include "bootstrap/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/long_wait.h"
#include "base/origin.h"
#include "bootstrap/inquiry.h"
#include "bootstrap/member.h"
#include "bootstrap/monitor.h"
#include "bootstrap/rendezvous.h"

namespace paceline {
namespace {

// A broken connection to a rank that died is often noticed before its death is known.
constexpr auto news_time = std::chrono::milliseconds(300);
constexpr std::size_t longest_reason = 16384;  // characters that travel to the other ranks
// From one look at the clock to the next, in an exchange.
constexpr auto look_time = std::chrono::milliseconds(250);

class CommunicatorMembership;

class StarSession final : public Session, public std::enable_shared_from_this<StarSession> {
 public:
  // A forked child leaves its copy alone: it has the memory, but neither the connections nor the monitor, and other
  // threads of the parent may have been in the midst of anything.
  static std::shared_ptr<StarSession> make(int rank, std::vector<Member> members, std::string secret) {
    return {new StarSession(rank, std::move(members), std::move(secret)), [](const StarSession* session) {
              if (!session->in_child()) delete session;
            }};
  }
  ~StarSession() override;

  Status connect(Assembly assembly);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(members_.size()); }
  [[nodiscard]] const std::vector<Member>& members() const override { return members_; }
  [[nodiscard]] const std::string& secret() const override { return secret_; }
  Result<std::vector<Bytes>> exchange(std::span<const std::byte> mine, Clock::time_point deadline,
                                      const Membership* whose) override;
  std::unique_ptr<Membership> enter(std::uint64_t id, std::vector<int> ranks, int my_rank) override;
  [[nodiscard]] std::optional<std::string> loss_of(int rank) const override {
    const Lock lock(mutex_);
    return lost_[static_cast<std::size_t>(rank)];
  }

 private:
  friend class CommunicatorMembership;
  using Lock = std::unique_lock<std::mutex>;

  StarSession(int rank, std::vector<Member> members, std::string secret)
      : rank_(rank), members_(std::move(members)), secret_(std::move(secret)), lost_(members_.size()) {}

  [[nodiscard]] bool in_child() const { return !origin_.is_here(); }
  void post(ControlMessage message) {
    if (monitor_) monitor_->post(std::move(message));
  }
  // Whether rank 0 is there to tell the others.
  [[nodiscard]] bool supervised() const { return monitor_ && !lost_[0] && unheard_.ok(); }

  void receive(const ControlMessage& message);
  void end_unheard(const Status& why);
  void handle(const Contribution& contribution);
  void handle(const Shortfall& shortfall);
  void handle(const Verdict& verdict);
  void handle(const Death& death);
  void handle(const Left& left);
  void handle(const Farewell& farewell);
  void handle(const Ping& ping);
  void forget(std::uint64_t id);
  // Whether this rank has yet to make the exchange, or is in it.
  [[nodiscard]] bool is_open(std::uint32_t round) const { return round >= round_ || contributions_.count(round) > 0; }
  // Why an exchange that lacks these ranks' bytes cannot succeed any more; ok while it can.
  [[nodiscard]] Status hopeless(const std::vector<int>& missing) const;

  const int rank_;
  const std::vector<Member> members_;
  const std::string secret_;
  const Origin origin_;

  mutable std::mutex mutex_;         // guards all below, and what the memberships say it does
  std::condition_variable changed_;  // anything of it
  std::map<std::uint64_t, CommunicatorMembership*> memberships_;
  std::set<std::uint64_t> forgotten_;                                      // communicators that have ended here
  std::map<std::uint64_t, Status> verdicts_;                               // of communicators not yet entered here
  std::map<std::uint64_t, std::map<std::uint32_t, std::uint32_t>> left_;   // communicator -> rank -> sequence
  std::vector<std::optional<std::string>> lost_;                           // by rank: how it went
  std::map<std::uint32_t, std::map<std::uint32_t, Bytes>> contributions_;  // round -> rank -> bytes
  std::map<std::uint32_t, Status> shortfalls_;                             // round -> why it has failed elsewhere
  std::uint32_t round_ = 0;
  Clock::duration not_run_{};  // in exchanges, whose deadlines it puts off: they may have one in common
  Status unheard_;             // why nothing is heard of the others any more; ok: it is

  std::unique_ptr<Monitor> monitor_;  // null for a session of one rank
};

class CommunicatorMembership final : public Membership {
 public:
  CommunicatorMembership(std::shared_ptr<StarSession> session, std::uint64_t id, std::vector<int> ranks, int my_rank)
      : session_(std::move(session)), id_(id), ranks_(std::move(ranks)), my_rank_(my_rank) {}
  ~CommunicatorMembership() override;

  [[nodiscard]] Status failure() const override;
  Status report(Status reason) override;
  Status timed_out(int waiting_for, const Call& call, double seconds) override;
  [[nodiscard]] bool has_left(int rank, std::uint32_t* sequence) const override;
  void when_failed(const void* owner, std::function<void(const Status& reason)> call) override;
  void when_left(std::function<void(int rank)> call) override;
  bool leave() override;

 private:
  friend class StarSession;

  // All of these with the session's mutex held.
  void fail(Status reason);
  void fail_for_all(StarSession::Lock& lock, Status reason);
  void learn_of_death(int session_rank, const std::string& how);
  [[nodiscard]] Status aborted() const { return failure_.code() == Code::aborted ? failure_ : Status(); }
  [[nodiscard]] Pong answer(std::uint64_t inquiry) const;
  [[nodiscard]] std::optional<std::uint32_t> left_after(int rank) const;  // its last collective, if it has left
  [[nodiscard]] const Member& member(int rank) const { return session_->members_[session_rank(rank)]; }
  [[nodiscard]] std::size_t session_rank(int rank) const {
    return static_cast<std::size_t>(ranks_[static_cast<std::size_t>(rank)]);
  }

  const std::shared_ptr<StarSession> session_;
  const std::uint64_t id_;
  const std::vector<int> ranks_;  // the session's
  const int my_rank_;
  // Guarded by the session's mutex.
  Status failure_;
  bool i_left_ = false;
  std::map<const void*, std::function<void(const Status& reason)>> when_failed_;
  bool tells_ = false;  // a thread is telling the others why the communicator ends, for half a second at most
  std::function<void(int rank)> when_left_;
};

// The session.

Status StarSession::connect(Assembly assembly) {
  const Lock lock(mutex_);  // the first message may come before monitor_ is set
  const Status scarcity = own_error(rank_, Status::system("the thread of its control connections", ENOMEM));
  Result<std::unique_ptr<Monitor>> monitor = Monitor::start(
      rank_, std::move(assembly), [this](const ControlMessage& message) { receive(message); },
      [this, scarcity] { end_unheard(scarcity); });
  PACE_TRY(monitor.status());
  monitor_ = std::move(*monitor);
  return {};
}

StarSession::~StarSession() {
  if (!monitor_) return;
  std::unique_ptr<Monitor> ending;
  {
    const Lock lock(mutex_);
    ending = std::move(monitor_);
  }
  ending->post(Farewell{static_cast<std::uint32_t>(rank_)});
}

Result<std::vector<Bytes>> StarSession::exchange(std::span<const std::byte> mine, Clock::time_point deadline,
                                                 const Membership* whose) {
  if (mine.size() > largest_contribution)
    return Status(Code::invalid_argument,
                  fmt::format("an exchange of {} bytes: {} are the most", mine.size(), largest_contribution));
  const auto begin = Clock::now();
  const auto self = static_cast<std::uint32_t>(rank_);
  Lock lock(mutex_);
  const std::uint32_t round = round_++;
  const Clock::duration not_run_before = not_run_;
  std::map<std::uint32_t, Bytes>& got = contributions_[round];
  got[self] = Bytes(mine.begin(), mine.end());
  if (members_.size() > 1) post(Contribution{round, self, got[self]});

  bool late = false;
  for (;;) {
    // What the first that failed said: it may have ended its session since. Where all bytes have come, too: to go on
    // without it is in vain.
    if (const auto told = shortfalls_.find(round); told != shortfalls_.end()) {
      Status reason = told->second;
      contributions_.erase(round);
      shortfalls_.erase(round);
      return reason;
    }
    if (got.size() == members_.size()) break;
    std::vector<int> missing;
    for (std::uint32_t rank = 0; rank < members_.size(); ++rank)
      if (got.count(rank) == 0) missing.push_back(static_cast<int>(rank));
    Status failure = hopeless(missing);
    if (failure.ok()) failure = unheard_;
    if (failure.ok() && whose != nullptr) failure = static_cast<const CommunicatorMembership*>(whose)->aborted();
    if (failure.ok() && late) {
      const double seconds = std::chrono::duration<double>(Clock::now() - begin - (not_run_ - not_run_before)).count();
      failure = Status(absence(missing, "an exchange", std::round(10 * seconds) / 10));
    }
    if (!failure.ok()) {
      contributions_.erase(round);
      post(Shortfall{round, failure.detail()});
      lock.unlock();  // the monitor's thread may want it
      if (monitor_) monitor_->flush();
      return failure;
    }
    const auto looked = Clock::now();
    changed_.wait_until(lock, std::min(deadline + not_run_, looked + look_time));
    const auto apart = Clock::now() - looked;
    if (apart >= not_running) not_run_ += apart;
    late = looked + apart >= deadline + not_run_;
  }
  std::vector<Bytes> all;
  all.reserve(got.size());
  for (auto& [rank, bytes] : got) all.push_back(std::move(bytes));
  contributions_.erase(round);
  return all;
}

Status StarSession::hopeless(const std::vector<int>& missing) const {
  std::vector<int> needed = missing;
  needed.push_back(0);  // without it nobody else's bytes can come either
  for (const int rank : needed) {
    const auto place = static_cast<std::size_t>(rank);
    if (!lost_[place]) continue;
    Status::Detail detail;
    detail.code = Code::remote;
    detail.rank = rank;
    detail.host = members_[place].host;
    detail.message = fmt::format("{} {}, during an exchange", named(rank, members_[place]), *lost_[place]);
    return Status(std::move(detail));
  }
  return {};
}

std::unique_ptr<Membership> StarSession::enter(std::uint64_t id, std::vector<int> ranks, int my_rank) {
  auto membership = std::make_unique<CommunicatorMembership>(shared_from_this(), id, std::move(ranks), my_rank);
  const Lock lock(mutex_);
  memberships_[id] = membership.get();
  if (const auto verdict = verdicts_.find(id); verdict != verdicts_.end()) {
    membership->fail(verdict->second);
    verdicts_.erase(verdict);
  }
  for (std::size_t rank = 0; rank < lost_.size(); ++rank)
    if (lost_[rank]) membership->learn_of_death(static_cast<int>(rank), *lost_[rank]);
  if (!unheard_.ok()) membership->fail(unheard_);
  return membership;
}

void StarSession::receive(const ControlMessage& message) {
  const Lock lock(mutex_);
  std::visit(
      [this](const auto& specific) {
        if constexpr (requires { handle(specific); }) handle(specific);
        // The rest is for rank 0's coordinator, or of a rendezvous that is over.
      },
      message);
  changed_.notify_all();
}

// Without memory, for there is none.
void StarSession::end_unheard(const Status& why) {
  const Lock lock(mutex_);
  unheard_ = why;
  for (const auto& [id, membership] : memberships_) membership->fail(why);
  changed_.notify_all();
}

void StarSession::handle(const Contribution& contribution) {
  // One for a round that has failed here would wait for ever.
  if (is_open(contribution.round) && contribution.rank < members_.size())
    contributions_[contribution.round][contribution.rank] = contribution.bytes;
}

void StarSession::handle(const Shortfall& shortfall) {
  if (is_open(shortfall.round)) shortfalls_.try_emplace(shortfall.round, Status(shortfall.reason));
}

void StarSession::handle(const Verdict& verdict) {
  if (forgotten_.count(verdict.communicator) > 0) return;
  const auto place = memberships_.find(verdict.communicator);
  if (place != memberships_.end())
    place->second->fail(Status(verdict.reason));
  else
    verdicts_.try_emplace(verdict.communicator, Status(verdict.reason));
}

void StarSession::handle(const Death& death) {
  if (death.rank >= lost_.size() || lost_[death.rank]) return;
  lost_[death.rank] = death.how;
  for (const auto& [id, membership] : memberships_)
    membership->learn_of_death(static_cast<int>(death.rank), *lost_[death.rank]);
}

void StarSession::handle(const Left& left) {
  // Every rank of a communicator has entered it before any leaves it: this one has no part in it, or none any more.
  const auto place = memberships_.find(left.communicator);
  if (place == memberships_.end()) return;
  left_[left.communicator][left.rank] = left.sequence;
  if (place->second->when_left_) place->second->when_left_(static_cast<int>(left.rank));
}

void StarSession::handle(const Farewell& farewell) {
  if (farewell.rank < lost_.size() && !lost_[farewell.rank]) lost_[farewell.rank] = "ended its session";
}

void StarSession::handle(const Ping& ping) {
  const auto place = memberships_.find(ping.communicator);
  post(place == memberships_.end() ? Pong{ping.inquiry, Pong::State::absent, 0} : place->second->answer(ping.inquiry));
}

void StarSession::forget(std::uint64_t id) {
  memberships_.erase(id);
  left_.erase(id);
  forgotten_.insert(id);
}

// The membership.

CommunicatorMembership::~CommunicatorMembership() {
  if (session_->in_child()) return;
  const StarSession::Lock lock(session_->mutex_);
  if (!i_left_ && !failed()) {
    Status::Detail detail;
    detail.code = Code::remote;
    detail.rank = my_rank_;
    detail.host = member(my_rank_).host;
    detail.message = named(my_rank_, member(my_rank_)) + " dropped the communicator without leaving it";
    session_->post(Verdict{id_, detail});
    fail(Status(std::move(detail)));
  }
  session_->forget(id_);
}

Status CommunicatorMembership::failure() const {
  const StarSession::Lock lock(session_->mutex_);
  return failure_;
}

void CommunicatorMembership::fail(Status reason) {
  if (failed()) return;
  failure_ = std::move(reason);
  failed_.store(true, std::memory_order_release);  // after failure_: whoever sees it may ask why
  for (const auto& [owner, call] : when_failed_) call(failure_);
  session_->changed_.notify_all();
}

// First the others, then this rank, whose program may end because of it.
void CommunicatorMembership::fail_for_all(StarSession::Lock& lock, Status reason) {
  if (failed()) return;
  if (tells_) {
    session_->changed_.wait(lock, [this] { return failed(); });
    return;
  }
  Status::Detail detail = reason.detail();
  if (detail.message.size() > longest_reason) detail.message.resize(longest_reason);
  session_->post(Verdict{id_, std::move(detail)});
  tells_ = true;
  lock.unlock();  // the monitor's thread may want it
  if (session_->monitor_) session_->monitor_->flush();
  lock.lock();
  fail(std::move(reason));
}

void CommunicatorMembership::learn_of_death(int session_rank, const std::string& how) {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    if (ranks_[static_cast<std::size_t>(rank)] != session_rank) continue;
    if (left_after(rank)) return;
    Status::Detail detail;
    detail.code = Code::remote;
    detail.message = fmt::format("{} {}", named(rank, member(rank)), how);
    detail.rank = rank;
    detail.host = member(rank).host;
    // relaxed: only told, nothing is read because of them
    if (activity.inside.load(std::memory_order_relaxed) == Inside::collective)
      detail.sequence = activity.sequence.load(std::memory_order_relaxed);
    fail(Status(std::move(detail)));
    return;
  }
}

Pong CommunicatorMembership::answer(std::uint64_t inquiry) const {
  // relaxed: the two may be of different moments; an inquiry is about seconds
  const Inside inside = activity.inside.load(std::memory_order_relaxed);
  const std::uint32_t sequence = activity.sequence.load(std::memory_order_relaxed);
  if (i_left_) return {inquiry, Pong::State::left, sequence};
  switch (inside) {
    case Inside::nothing: return {inquiry, Pong::State::outside, sequence};
    case Inside::collective: return {inquiry, Pong::State::inside, sequence};
    case Inside::messages: return {inquiry, Pong::State::in_messages, sequence};
  }
  return {inquiry, Pong::State::outside, sequence};
}

Status CommunicatorMembership::report(Status reason) {
  StarSession::Lock lock(session_->mutex_);
  const bool of_another = reason.detail().rank != my_rank_;
  if (reason.code() == Code::remote && of_another && session_->supervised())
    session_->changed_.wait_until(lock, Clock::now() + news_time, [this] { return failed(); });
  fail_for_all(lock, std::move(reason));
  return failure_;
}

Status CommunicatorMembership::timed_out(int waiting_for, const Call& call, double seconds) {
  StarSession::Lock lock(session_->mutex_);
  if (failed()) return failure_;
  if (waiting_for < 0 || static_cast<std::size_t>(waiting_for) >= ranks_.size()) {
    Status::Detail detail;
    detail.code = Code::timeout;
    detail.message = fmt::format("{} waited {:.1f} s in {}; it is not known for whom",
                                 named(my_rank_, member(my_rank_)), seconds, describe(call));
    detail.collective = title(call);
    detail.sequence = call.sequence;
    fail_for_all(lock, Status(std::move(detail)));
    return failure_;
  }
  Suspicion suspicion;
  suspicion.communicator = id_;
  suspicion.ranks.assign(ranks_.begin(), ranks_.end());
  suspicion.waiting = static_cast<std::uint32_t>(my_rank_);
  suspicion.waiting_for = static_cast<std::uint32_t>(waiting_for);
  suspicion.call = call;
  suspicion.seconds = seconds;
  if (session_->supervised()) {
    session_->post(suspicion);
    session_->changed_.wait_until(lock, Clock::now() + verdict_time,
                                  [this] { return failed() || !session_->supervised(); });
  }
  if (!session_->supervised()) {
    fail_for_all(lock, Status(accusation(suspicion, waiting_for, member(waiting_for),
                                         "has not answered, and rank 0 of the job is no longer there to ask others")));
    return failure_;
  }
  int rank_0 = -1;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
    if (session_rank(rank) == 0 && !left_after(rank)) rank_0 = rank;
  const bool is_here = rank_0 >= 0;
  fail_for_all(lock,
               Status(accusation(
                   suspicion, is_here ? rank_0 : waiting_for, member(is_here ? rank_0 : waiting_for),
                   is_here ? no_answer
                           : "has not answered, and rank 0 of the job, which would ask it, does not answer either")));
  return failure_;
}

bool CommunicatorMembership::has_left(int rank, std::uint32_t* sequence) const {
  const StarSession::Lock lock(session_->mutex_);
  const std::optional<std::uint32_t> last = left_after(rank);
  if (last && sequence != nullptr) *sequence = *last;
  return last.has_value();
}

std::optional<std::uint32_t> CommunicatorMembership::left_after(int rank) const {
  const auto left = session_->left_.find(id_);
  if (left == session_->left_.end()) return {};
  const auto place = left->second.find(static_cast<std::uint32_t>(rank));
  if (place == left->second.end()) return {};
  return place->second;
}

void CommunicatorMembership::when_failed(const void* owner, std::function<void(const Status& reason)> call) {
  const StarSession::Lock lock(session_->mutex_);
  if (call && failed()) call(failure_);
  if (call)
    when_failed_[owner] = std::move(call);
  else
    when_failed_.erase(owner);
}

void CommunicatorMembership::when_left(std::function<void(int rank)> call) {
  const StarSession::Lock lock(session_->mutex_);
  when_left_ = std::move(call);
  const auto left = session_->left_.find(id_);
  if (!when_left_ || left == session_->left_.end()) return;
  for (const auto& [rank, sequence] : left->second) when_left_(static_cast<int>(rank));
}

bool CommunicatorMembership::leave() {
  if (session_->in_child()) return false;
  const StarSession::Lock lock(session_->mutex_);
  if (i_left_ || failed()) return false;
  i_left_ = true;
  session_->post(Left{id_, static_cast<std::uint32_t>(my_rank_),
                      activity.sequence.load(std::memory_order_relaxed),  // relaxed: this thread's own
                      static_cast<std::uint32_t>(ranks_.size())});
  return true;
}

}  // namespace

Result<std::shared_ptr<Session>> join(Rendezvous where) {
  if (where.size < 1 || where.rank < 0 || where.rank >= where.size || where.size > max_ranks)
    return Status(Code::invalid_argument,
                  fmt::format("rank {} of {} ranks: 0 <= rank < ranks <= {}", where.rank, where.size, max_ranks));
  if (where.size == 1) return alone();
  Result<Assembly> assembly = where.rank == 0 ? gather(where, std::move(where.listener)) : report_in(where);
  PACE_TRY(own_error(where.rank, assembly.status()));
  auto session = StarSession::make(where.rank, assembly->members, where.secret);
  PACE_TRY(own_error(where.rank, session->connect(std::move(*assembly))));
  return std::shared_ptr<Session>(std::move(session));
}

std::shared_ptr<Session> alone() {
  Member self = this_member();
  self.address = "127.0.0.1";
  return StarSession::make(0, {std::move(self)}, "");
}

}  // namespace paceline
