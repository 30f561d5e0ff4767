// A schedule: all ranks' steps for one collective at one size. It is what algorithms write, what the proof checks, the
// simulator walks and the engines run; a cost formula (cost.h) says what it takes.
//
// An algorithm writes *rounds* of moves. The moves of one round happen at once: each reads what was there before the
// round. A move longer than the chunk is cut; the chunks of one round's moves are taken in turn, so that many moves
// advance side by side. What comes out is, for every rank, a list of steps in the order in which it takes them:
//
//   send          read `source`, give it to every rank of `peers`
//   recv          write the message of the one rank of `peers` to `target`
//   recv_reduce   fold the messages of `peers` and, if `own` >= 0, the local `source`, in the order of their ranks,
//                 and write the result to `target`
//   copy          write `source` to `target`
//
// The steps of one channel are taken in order (an engine may take a receive before others that it does not touch:
// engine/plan.h); channels run side by side and must not touch each other's data. Sends do not wait for their
// receivers, up to `capacity(n)` messages a channel. Between two ranks, on one channel, the k-th message sent is the
// k-th received.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedule/problem.h"

namespace paceline {

// Where a rank's data lies. Scratch is as long as the schedule asks (Schedule::need_scratch).
enum class Buffer : std::uint8_t { input, output, scratch };

// Elements [offset, offset + count) of one of a rank's buffers.
struct Region {
  Buffer buffer = Buffer::input;
  std::size_t offset = 0;
  std::size_t count = 0;
};

// The beginning of a region, on a rank.
struct Place {
  int rank = 0;
  Buffer buffer = Buffer::input;
  std::size_t offset = 0;
};

enum class Action : std::uint8_t { send, recv, recv_reduce, copy };
const char* name(Action action);

struct Step {
  Action action = Action::send;
  std::uint8_t channel = 0;
  std::int16_t own = -1;         // recv_reduce: messages that come before the local operand; -1: no local operand
  std::uint32_t first_peer = 0;  // in Schedule::peers
  std::uint32_t peer_count = 0;
  // The message, or each that is folded, goes to every other rank, and these are at least two: such messages may travel
  // another way than those to some ranks.
  bool to_all = false;
  Region source;  // of send and copy; the local operand of recv_reduce
  Region target;  // of recv, recv_reduce and copy

  [[nodiscard]] bool reads() const { return action == Action::send || action == Action::copy || own >= 0; }
  [[nodiscard]] bool writes() const { return action != Action::send; }
  // That the step moves: the length of its source, of its target, or of both.
  [[nodiscard]] std::size_t elements() const { return (writes() ? target : source).count; }
};

inline constexpr int max_channels = 2;

// Messages that a rank may have under way (sent, not yet taken by all receivers) on one channel, at least.
inline constexpr int capacity(int ranks) { return ranks > 8 ? ranks : 8; }

class Schedule {
 public:
  // With `only`, the steps of that rank alone are kept: an algorithm is written for all ranks, and one rank's part of
  // it can be had without the memory of the whole.
  Schedule(const Problem& problem, const Parameters& parameters, std::optional<int> only = std::nullopt);

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const Parameters& parameters() const { return parameters_; }
  [[nodiscard]] int ranks() const { return problem_.ranks; }
  [[nodiscard]] std::optional<int> only() const { return only_; }
  [[nodiscard]] bool keeps(int rank) const { return !only_ || *only_ == rank; }
  // Whether a move from one rank to another leaves a step of either here. An algorithm of n moves a round leaves out
  // the others, so that each rank of a call writes its own part in time that does not grow with n a round.
  [[nodiscard]] bool concerns(int from, int to) const { return keeps(from) || keeps(to); }
  // Position p's rank in the order of chains and rings.
  [[nodiscard]] int in_order(int position) const;

  // ---- Writing. All moves are of `count` elements; those of 0 elements vanish. ----

  // `to` gets what `from` holds. On one rank: a copy (none, if it would be onto itself).
  void move(Place from, Place to, std::size_t count, int channel = 0);
  // Every place of `to` gets what `from` holds; the data leaves `from` once.
  void multicast(Place from, std::span<const Place> to, std::size_t count, int channel = 0);
  // `to` gets the sum (product, ...) of `from`, which is in ascending order of ranks and may include to.rank.
  void reduce(std::span<const Place> from, Place to, std::size_t count, int channel = 0);
  // Every place of `to` gets that sum; each operand leaves its rank once.
  void reduce(std::span<const Place> from, std::span<const Place> to, std::size_t count, int channel = 0);
  // One step of one rank as it stands, after the open round: for schedules that come from elsewhere. Nothing matches it
  // with the other ranks' steps but the proof.
  void append(int rank, Step step, std::span<const int> peers);
  // End the round: what follows sees what it wrote. The last round may be left open.
  void round();
  // `rank` needs at least this many elements of scratch.
  void need_scratch(int rank, std::size_t elements);

  // ---- Reading. Ends an open round. ----

  [[nodiscard]] std::span<const Step> steps(int rank);
  [[nodiscard]] std::span<const int> peers(int rank, const Step& step) const;
  [[nodiscard]] std::size_t scratch_elements(int rank) const { return lanes_[index(rank)].scratch; }
  [[nodiscard]] int channels() const { return channels_; }

 private:
  // One move of the open round, as one rank sees it.
  struct Pending {
    Step step;
    std::size_t count = 0;
  };
  struct Lane {
    std::vector<Step> steps;
    std::vector<int> peers;
    std::vector<Pending> sends;     // of the open round
    std::vector<Pending> receives;  // of the open round: recv, recv_reduce and copy
    std::size_t scratch = 0;
  };

  [[nodiscard]] std::size_t index(int rank) const { return only_ ? 0 : static_cast<std::size_t>(rank); }
  void add(int rank, Step step, std::span<const int> peers, std::size_t count);
  void close_round(Lane& lane, std::size_t longest) const;

  Problem problem_;
  Parameters parameters_;
  std::optional<int> only_;
  std::vector<Lane> lanes_;
  std::size_t longest_ = 0;  // move of the open round, elements
  int channels_ = 1;
};

}  // namespace paceline
