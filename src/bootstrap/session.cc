#include "bootstrap/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <new>

#include "base/interrupted.h"
#include "base/long_wait.h"
#include "bootstrap/member.h"
#include "bootstrap/star_session.h"

namespace paceline {
namespace {

// From one look at the clock to the next, in an exchange.
constexpr auto look_time = std::chrono::milliseconds(250);

}  // namespace

Status StarSession::connect(Assembly assembly) {
  const Lock lock(mutex_);  // the first message may come before monitor_ is set
  const Status scarcity = own_error(rank_, Status::system("the thread of its control connections", ENOMEM));
  Result<std::unique_ptr<Monitor>> monitor = Monitor::start(
      rank_, std::move(assembly), [this](const ControlMessage& message) { receive(message); },
      [this, scarcity] { end_unheard(scarcity); }, [this] { look(); });
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
  try {
    ending->post(Farewell{static_cast<std::uint32_t>(rank_)});
  } catch (const std::bad_alloc&) {  // the others take this rank for dead
  }
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
  bool asked_to_end = false;
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
    if (failure.ok() && asked_to_end) failure = own_error(rank_, Status(Code::aborted, "it was interrupted"));
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
    lock.unlock();
    asked_to_end = interrupted();
    lock.lock();
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
  entered_.insert(id);
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

void StarSession::look() {
  const std::lock_guard looking(looks_mutex_);
  for (const auto& [membership, look] : looks_) {
    const Status found = look();
    if (found.ok()) continue;
    const Lock lock(mutex_);
    if (membership->failed()) continue;
    post(Verdict{membership->id_, found.detail()});
    membership->fail(found);
  }
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
  const auto place = memberships_.find(verdict.communicator);
  if (place != memberships_.end())
    place->second->fail(Status(verdict.reason));
  else if (entered_.count(verdict.communicator) == 0)
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

bool StarSession::in_a_call() const {
  return std::ranges::any_of(memberships_, [](const auto& one) {
    return one.second->activity.inside.load(std::memory_order_relaxed) != Inside::nothing;  // relaxed: only told
  });
}

void StarSession::forget(std::uint64_t id) {
  memberships_.erase(id);
  left_.erase(id);
}

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
