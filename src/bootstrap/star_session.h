// A session whose control connections form a star around rank 0, and its memberships: both know each other, and one
// mutex guards all that they hold. What the session does is in session.cc, the memberships' part in membership.cc.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/origin.h"
#include "bootstrap/control_message.h"
#include "bootstrap/monitor.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/session.h"

namespace paceline {

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
  void look();  // by the memberships' looks, on the monitor's thread
  void handle(const Contribution& contribution);
  void handle(const Shortfall& shortfall);
  void handle(const Verdict& verdict);
  void handle(const Death& death);
  void handle(const Left& left);
  void handle(const Farewell& farewell);
  void handle(const Ping& ping);
  void forget(std::uint64_t id);
  // Of any of its communicators, with the mutex held.
  [[nodiscard]] bool in_a_call() const;
  // Whether this rank has yet to make the exchange, or is in it.
  [[nodiscard]] bool is_open(std::uint32_t round) const { return round >= round_ || contributions_.count(round) > 0; }
  // Why an exchange that lacks these ranks' bytes cannot succeed any more; ok while it can.
  [[nodiscard]] Status hopeless(const std::vector<int>& missing) const;

  const int rank_;
  const std::vector<Member> members_;
  const std::string secret_;
  const Origin origin_;

  std::mutex looks_mutex_;  // taken before mutex_; guards:
  std::map<CommunicatorMembership*, std::function<Status()>> looks_;

  mutable std::mutex mutex_;         // guards all below, and what the memberships say it does
  std::condition_variable changed_;  // anything of it
  std::map<std::uint64_t, CommunicatorMembership*> memberships_;
  std::set<std::uint64_t> entered_;                                        // communicators, also those ended since
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
  void look_by(std::function<Status()> look) override;
  bool leave() override;

 private:
  friend class StarSession;

  // All of these with the session's mutex held.
  void drop();
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

}  // namespace paceline
