// The host engine: walks plans' steps over transports, without waiting.
//
// An execution has lanes: the channels of a plan, or the sends and receives of a group. Each lane takes its steps in
// order; advance() goes round the lanes and takes every step that can be taken now. wait.h drives it to its end.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/call.h"
#include "base/cpus.h"
#include "bootstrap/session.h"
#include "engine/plan.h"
#include "transport/transport.h"

namespace paceline {

// Learns, while a trace is open, of the steps that no transport sees.
class StepWatch {
 public:
  virtual ~StepWatch() = default;
  virtual void copy_begins() = 0;
  virtual void copy_ends(int channel, std::size_t bytes, const Call& call) = 0;
  // The messages that have come on this channel from these ranks are folded next, and then released.
  virtual void folds(int channel, std::span<const int> peers) = 0;
};

// What a communicator lends to its executions.
struct Wiring {
  int rank = 0;
  int ranks = 1;
  std::array<Transport*, max_transports> transports{};  // nullptr: there is none of this number
  Routes routes;
  Membership* membership = nullptr;
  StepWatch* watch = nullptr;   // nullptr: no trace is open
  double timeout = 300;         // s
  bool oversubscribed = false;  // more ranks on this node than CPUs
  int node_ranks = 1;           // of the job, on this node
  // Where this rank moves when it finds itself on a CPU with others, or, with more ranks than CPUs, before a call.
  HomeCpu home;
  // Messages accepted so far by each transport and channel.
  std::array<std::array<std::uint64_t, max_channels>, max_transports> posted{};
};

// Where an execution's buffers begin.
struct Memory {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  std::byte* places = nullptr;  // plan.place_bytes for each lane, then the next lane's

  // Input is never a target; one array for all three keeps the steps simple.
  [[nodiscard]] std::array<std::byte*, 3> by_buffer() const { return {const_cast<std::byte*>(input), output, scratch}; }
};

class Execution {
 public:
  explicit Execution(Wiring& wiring);

  // Forget what was run before.
  void clear();
  // With `after`, a number of lanes that this returned before, the plan starts when that lane has ended. Returns the
  // number of the last lane there is now, the plan's if it has any; -1: there is none.
  int add(const Plan& plan, const Call& call, const Memory& memory, int after = -1);

  // Instead, where the plan is one short message: give or take it without a lane, which takes as long as the message.
  // Nothing is left to do then. False: nothing is done, for the plan is another one, there is no room, or the message
  // has not come within some looks.
  bool take_at_once(const Plan& plan, const Call& call, const Memory& memory);
  [[nodiscard]] bool empty() const { return lanes_.empty(); }

  enum class Turn { moved, stuck, done, failed };
  Turn advance();
  // Whether all steps are taken and all messages have left.
  [[nodiscard]] bool has_ended() const;

  [[nodiscard]] Wiring& wiring() { return wiring_; }
  // After `stuck`: the rank that the first stuck lane waits for, and its call; where all steps are taken, the rank that
  // has yet to take a message. Rank -1: there is none, it has ended or can go on.
  struct Wait {
    int rank = -1;
    Call call;
    bool owed = false;  // as in Transport::compare(): a message has yet to be sent; else only to be taken
  };
  [[nodiscard]] Wait waiting_for() const;
  // The same of one lane alone. Rank -1: it has ended, can go on, or is to start when another one has ended.
  [[nodiscard]] Wait waiting_for(std::size_t lane) const;
  [[nodiscard]] std::size_t lanes() const { return lanes_.size(); }
  // After `failed`: the transport's reason.
  [[nodiscard]] Status failure() const;

 private:
  struct Lane {
    const PlanStep* next = nullptr;
    const PlanStep* end = nullptr;
    std::uint64_t taken = 0;  // of the steps from `next` on, a bit for each that was taken before its turn
    const Plan* plan = nullptr;
    Call call;
    std::array<std::byte*, 3> base{};  // by Buffer
    std::byte* places = nullptr;
    int after = -1;                                      // lane that must end before this one starts
    std::uint32_t arrived = 0;                           // messages of the current fold that are there
    std::uint32_t first_source = 0;                      // in sources_
    std::array<std::uint64_t, max_transports> before{};  // messages posted on the channel before this execution
    std::array<std::uint32_t, most_kept> kept{};         // by PlanStep::kept: the transport's number, or nothing_kept

    void pass() {
      do {
        ++next;
        taken >>= 1U;
      } while ((taken & 1U) != 0);
    }
  };

  Attempt take(Lane& lane, const PlanStep& step);
  Attempt take_out_of_turn(Lane& lane);
  Attempt receive(Lane& lane, const PlanStep& step);
  Attempt receive_and_fold(Lane& lane, const PlanStep& step);
  Attempt send(Lane& lane, const PlanStep& step);
  std::byte* message_to_keep(Lane& lane, const PlanStep& step, int from) const;
  Attempt keep(Lane& lane, const PlanStep& step, int from) const;
  [[nodiscard]] Call call_with(int rank) const;
  [[nodiscard]] bool may_write(const Lane& lane, const PlanStep& step) const;
  [[nodiscard]] bool everything_left() const;
  [[nodiscard]] bool ended_lane(int number) const {
    const Lane& lane = lanes_[static_cast<std::size_t>(number)];
    return lane.next == lane.end;
  }
  [[nodiscard]] Transport& transport_to(int rank) const {
    return *wiring_.transports[wiring_.routes.transport[static_cast<std::size_t>(rank)]];
  }

  Wiring& wiring_;
  std::vector<Lane> lanes_;
  int channels_ = 0;                       // used by the lanes: what was sent before has left
  std::vector<const std::byte*> sources_;  // of each lane's current fold, ranks + 1 apart
};

}  // namespace paceline
