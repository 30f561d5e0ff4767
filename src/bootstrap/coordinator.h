// Rank 0's part in a session: passes on what ranks tell all, announces deaths, and runs the inquiries after a timeout.
// It holds no socket and no thread; the monitor tells it what has happened and when.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bootstrap/control_message.h"

namespace paceline {

// How long an inquiry waits for signs of life; whoever asked for it waits somewhat longer for the verdict.
inline constexpr auto inquiry_time = std::chrono::milliseconds(400);
inline constexpr auto verdict_time = std::chrono::milliseconds(850);

class Coordinator {
 public:
  using Ranks = std::vector<std::uint32_t>;
  // How messages reach ranks (0 too).
  using Send = std::function<void(const Ranks& ranks, const ControlMessage& message)>;

  Coordinator(std::vector<Member> members, Send send);

  void receive(std::uint32_t from, const ControlMessage& message, Clock::time_point now);
  // The connection of `rank` has ended: a death, unless the rank had said farewell. `how` follows its name.
  void lost(std::uint32_t rank, const std::string& how);
  // Ends the inquiries whose time is up.
  void tick(Clock::time_point now);
  [[nodiscard]] std::optional<Clock::time_point> next_tick() const;

 private:
  struct Inquiry {
    std::uint64_t number = 0;
    Suspicion suspicion;
    std::vector<std::optional<Pong>> answers;  // by the communicator's rank
    Clock::time_point deadline;
  };
  using Inquiries = std::map<std::uint64_t, Inquiry>;  // by communicator

  void handle(std::uint32_t from, const Contribution& contribution);
  void handle(std::uint32_t from, const Shortfall& shortfall);
  void handle(std::uint32_t from, const Verdict& verdict);
  void handle(std::uint32_t from, const Left& left);
  void handle(std::uint32_t from, const Farewell& farewell);
  void suspect(std::uint32_t from, const Suspicion& suspicion, Clock::time_point now);
  void answer(std::uint32_t from, const Pong& pong);
  void note_departure(std::uint32_t rank, bool by_death);
  void conclude_if_complete(Inquiries::iterator inquiry);
  void conclude(Inquiries::iterator inquiry);
  void end(std::uint64_t communicator, const Status::Detail& reason);
  // Of a rank that has the communicator no more, or not yet: whether it left it, and when.
  [[nodiscard]] Pong departure(const Inquiry& inquiry, std::uint32_t rank) const;
  [[nodiscard]] Ranks everyone(std::optional<std::uint32_t> but = {}) const;  // who is still there

  std::vector<Member> members_;
  Send send_;
  std::vector<bool> gone_;
  std::map<std::uint64_t, Status::Detail> verdicts_;  // by communicator: the first stands
  // By communicator: who has left it, and after which collective.
  std::map<std::uint64_t, std::vector<std::pair<std::uint32_t, std::uint32_t>>> left_;
  Inquiries inquiries_;
  std::uint64_t next_inquiry_ = 1;
};

}  // namespace paceline
