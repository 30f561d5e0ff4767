// One communicator's part of a session: how it ends, and who of its ranks has left.
#include <fmt/format.h>

#include <new>

#include "bootstrap/inquiry.h"
#include "bootstrap/member.h"
#include "bootstrap/star_session.h"

namespace paceline {
namespace {

// A broken connection to a rank that died is often noticed before its death is known.
constexpr auto news_time = std::chrono::milliseconds(300);
constexpr std::size_t longest_reason = 16384;  // characters that travel to the other ranks

}  // namespace

CommunicatorMembership::~CommunicatorMembership() {
  if (session_->in_child()) return;
  const StarSession::Lock lock(session_->mutex_);
  try {
    if (!i_left_ && !failed()) drop();
  } catch (const std::bad_alloc&) {  // the others wait for it as long as they wait
  }
  session_->forget(id_);
}

void CommunicatorMembership::drop() {
  Status::Detail detail;
  detail.code = Code::remote;
  detail.rank = my_rank_;
  detail.host = member(my_rank_).host;
  detail.message = named(my_rank_, member(my_rank_)) + " dropped the communicator without leaving it";
  session_->post(Verdict{id_, detail});
  fail(Status(std::move(detail)));
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
    if (activity.inside.load(std::memory_order_relaxed) == Inside::collective) {
      Call call;
      call.what = activity.what.load(std::memory_order_relaxed);
      detail.sequence = activity.sequence.load(std::memory_order_relaxed);
      detail.collective = title(call);
      detail.message += fmt::format("; this rank was in {} #{}", detail.collective, detail.sequence);
    }
    fail(Status(std::move(detail)));
    return;
  }
}

Pong CommunicatorMembership::answer(std::uint64_t inquiry) const {
  // relaxed: the three may be of different moments; an inquiry is about seconds
  const Inside inside = activity.inside.load(std::memory_order_relaxed);
  const std::uint32_t sequence = activity.sequence.load(std::memory_order_relaxed);
  const int waiting_for = activity.waiting_for.load(std::memory_order_relaxed);
  if (i_left_) return {inquiry, Pong::State::left, sequence};
  switch (inside) {
    case Inside::nothing:
      return {inquiry, session_->in_a_call() ? Pong::State::elsewhere : Pong::State::outside, sequence};
    case Inside::collective: return {inquiry, Pong::State::inside, sequence, waiting_for};
    case Inside::messages: return {inquiry, Pong::State::in_messages, sequence, waiting_for};
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

void CommunicatorMembership::look_by(std::function<Status()> look) {
  if (session_->in_child()) return;
  const std::lock_guard looking(session_->looks_mutex_);
  if (look)
    session_->looks_[this] = std::move(look);
  else
    session_->looks_.erase(this);
}

bool CommunicatorMembership::leave() {
  if (session_->in_child()) return false;
  const StarSession::Lock lock(session_->mutex_);
  if (i_left_ || failed()) return false;
  session_->post(Left{id_, static_cast<std::uint32_t>(my_rank_),
                      activity.sequence.load(std::memory_order_relaxed),  // relaxed: this thread's own
                      static_cast<std::uint32_t>(ranks_.size())});
  i_left_ = true;  // last: where memory lacks for the message, others learn it from ~CommunicatorMembership
  return true;
}

}  // namespace paceline
