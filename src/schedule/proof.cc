#include "schedule/proof.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <utility>

#include "base/wrong.h"
#include "schedule/extent.h"
#include "schedule/faults.h"
#include "schedule/symbols.h"

namespace paceline {
namespace {

// A message under way.
struct Message {
  std::size_t count = 0;
  bool to_all = false;
  Stretches data;
  std::vector<bool> heard;  // barrier: the ranks whose start came before
  int lane = 0;             // of the sender
  std::size_t number = 0;   // on that lane
};

struct Queue {
  std::vector<std::shared_ptr<const Message>> messages;
  std::size_t taken = 0;
  [[nodiscard]] std::size_t waiting() const { return messages.size() - taken; }
};

// One channel of one rank.
struct Lane {
  std::vector<std::size_t> steps;  // by their number among the rank's steps
  std::size_t next = 0;
  std::vector<std::size_t> receivers_left;  // of each message sent
  std::size_t oldest = 0;                   // the first message that not all receivers have taken
  std::vector<bool> heard;
  bool queued = false;
};

class Proof {
 public:
  explicit Proof(Schedule& schedule);
  Status run();

 private:
  [[nodiscard]] Location locate(int rank, Buffer buffer, std::size_t offset) const {
    return paceline::locate(problem_, rank, buffer, offset);
  }
  Contents& contents(int rank, int memory) {
    return memories_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(memory)];
  }
  Queue& queue(int from, int to, int channel) {
    return queues_[(static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks_) + static_cast<std::size_t>(to)) *
                       static_cast<std::size_t>(channels_) +
                   static_cast<std::size_t>(channel)];
  }
  [[nodiscard]] Lane& lane(int number) { return lanes_[static_cast<std::size_t>(number)]; }
  [[nodiscard]] std::string where(int rank, std::size_t step) const;

  Status check_steps(int rank);

  Status advance(int lane_number);
  bool can_take(int rank, const Step& step, Lane& lane);
  Status take(int rank, std::size_t number, Lane& lane, int lane_number);
  Status send(int rank, std::size_t number, Lane& lane, int lane_number);
  Status receive(int rank, std::size_t number, Lane& lane);
  Status check_message(int rank, std::size_t number, int sender, const Message& message) const;
  void hear(const Message& message, Lane& receiver);
  Status read(int rank, std::size_t step, const Region& region, Stretches& data);
  void write(int rank, const Region& region, const Stretches& data);
  Status fold(int rank, std::size_t step, std::span<const Stretches* const> operands, std::size_t count,
              Stretches& result);
  void wake(int lane_number);
  Status explain_blocked();

  Status check_results();
  Status check_output(int rank, std::size_t offset, std::optional<int> from, std::size_t first);
  Status check_same_bits(int rank);
  Status check_barrier();
  [[nodiscard]] std::string describe(const Stretch& value, std::size_t at) const;

  Schedule& schedule_;
  const Problem problem_;
  const int ranks_;
  const int channels_;
  const bool barrier_;
  Expressions expressions_;
  std::vector<std::span<const Step>> steps_;
  std::vector<std::array<Contents, 3>> memories_;
  std::vector<Queue> queues_;
  std::vector<Lane> lanes_;
  std::deque<int> ready_;
};

Proof::Proof(Schedule& schedule)
    : schedule_(schedule),
      problem_(schedule.problem()),
      ranks_(schedule.ranks()),
      // Reading ends the open round, which may open a channel.
      channels_((schedule.round(), schedule.channels())),
      barrier_(problem_.collective == Collective::barrier),
      expressions_(ranks_),
      memories_(static_cast<std::size_t>(ranks_)),
      queues_(static_cast<std::size_t>(ranks_) * static_cast<std::size_t>(ranks_ * channels_)),
      lanes_(static_cast<std::size_t>(ranks_ * channels_)) {
  for (int rank = 0; rank < ranks_; ++rank) {
    steps_.push_back(schedule_.steps(rank));
    for (std::size_t i = 0; i < steps_.back().size(); ++i) {
      const int channel = std::min<int>(steps_.back()[i].channel, channels_ - 1);
      lane(rank * channels_ + channel).steps.push_back(i);
    }
    if (const std::size_t count = input_elements(problem_, rank); count > 0) {
      const Location input = locate(rank, Buffer::input, 0);
      contents(rank, input.memory).write(input.offset, count, {{0, count, static_cast<Expression>(rank), 0}});
    }
  }
  if (!barrier_) return;
  for (int number = 0; number < ranks_ * channels_; ++number) {
    lane(number).heard.resize(static_cast<std::size_t>(ranks_));
    lane(number).heard[static_cast<std::size_t>(number / channels_)] = true;
  }
}

std::string Proof::where(int rank, std::size_t number) const {
  const Step& step = steps_[static_cast<std::size_t>(rank)][number];
  std::string peers;
  for (const int peer : schedule_.peers(rank, step)) peers += fmt::format("{}{}", peers.empty() ? "" : ",", peer);
  if (peers.empty()) return fmt::format("rank {}, step {} ({})", rank, number, name(step.action));
  return fmt::format("rank {}, step {} ({} {} {}, channel {})", rank, number, name(step.action),
                     step.action == Action::send ? "to" : "from", peers, step.channel);
}

Status Proof::check_steps(int rank) {
  const auto steps = steps_[static_cast<std::size_t>(rank)];
  for (std::size_t i = 0; i < steps.size(); ++i)
    if (const std::string fault = fault_of(schedule_, rank, steps[i]); !fault.empty())
      return wrong(fmt::format("{}: {}", where(rank, i), fault));
  if (const std::string fault = fault_of_channels(schedule_, rank); !fault.empty())
    return wrong(fmt::format("rank {}: {}", rank, fault));
  return {};
}

// ---- Running ----

void Proof::wake(int number) {
  if (std::exchange(lane(number).queued, true)) return;
  ready_.push_back(number);
}

Status Proof::run() {
  for (int rank = 0; rank < ranks_; ++rank) PACE_TRY(check_steps(rank));
  for (int number = 0; number < ranks_ * channels_; ++number) wake(number);
  while (!ready_.empty()) {
    const int number = ready_.front();
    ready_.pop_front();
    lane(number).queued = false;
    PACE_TRY(advance(number));
  }
  PACE_TRY(explain_blocked());
  return barrier_ ? check_barrier() : check_results();
}

Status Proof::advance(int lane_number) {
  Lane& own = lane(lane_number);
  const int rank = lane_number / channels_;
  while (own.next < own.steps.size()) {
    const std::size_t number = own.steps[own.next];
    if (!can_take(rank, steps_[static_cast<std::size_t>(rank)][number], own)) break;
    PACE_TRY(take(rank, number, own, lane_number));
    ++own.next;
  }
  return {};
}

bool Proof::can_take(int rank, const Step& step, Lane& own) {
  if (step.action == Action::send)
    return own.receivers_left.size() - own.oldest < static_cast<std::size_t>(capacity(ranks_));
  if (step.action == Action::copy) return true;
  const auto peers = schedule_.peers(rank, step);
  return std::all_of(peers.begin(), peers.end(),
                     [&](int peer) { return queue(peer, rank, step.channel).waiting() > 0; });
}

Status Proof::take(int rank, std::size_t number, Lane& own, int lane_number) {
  const Step& step = steps_[static_cast<std::size_t>(rank)][number];
  if (step.action == Action::send) return send(rank, number, own, lane_number);
  if (step.action != Action::copy) return receive(rank, number, own);
  Stretches data;
  PACE_TRY(read(rank, number, step.source, data));
  write(rank, step.target, data);
  return {};
}

Status Proof::send(int rank, std::size_t number, Lane& own, int lane_number) {
  const Step& step = steps_[static_cast<std::size_t>(rank)][number];
  const auto peers = schedule_.peers(rank, step);
  auto message = std::make_shared<Message>();
  message->count = step.source.count;
  message->to_all = step.to_all;
  message->heard = own.heard;
  message->lane = lane_number;
  message->number = own.receivers_left.size();
  PACE_TRY(read(rank, number, step.source, message->data));
  own.receivers_left.push_back(peers.size());
  for (const int peer : peers) {
    queue(rank, peer, step.channel).messages.push_back(message);
    wake(peer * channels_ + step.channel);
  }
  return {};
}

Status Proof::check_message(int rank, std::size_t number, int sender, const Message& message) const {
  const Step& step = steps_[static_cast<std::size_t>(rank)][number];
  if (message.count != step.target.count) {
    return wrong(fmt::format("{}: the message of rank {} has {} elements, not {}", where(rank, number), sender,
                             message.count, step.target.count));
  }
  if (message.to_all != step.to_all) {
    return wrong(fmt::format("{}: the message of rank {} is {}to all ranks, unlike what is awaited",
                             where(rank, number), sender, message.to_all ? "" : "not "));
  }
  return {};
}

// Once it is taken: its sender has one receiver less to wait for, and the receiver has heard what the sender had.
void Proof::hear(const Message& message, Lane& receiver) {
  Lane& sender = lane(message.lane);
  --sender.receivers_left[message.number];
  while (sender.oldest < sender.receivers_left.size() && sender.receivers_left[sender.oldest] == 0) ++sender.oldest;
  wake(message.lane);
  for (std::size_t i = 0; i < receiver.heard.size(); ++i)
    if (message.heard[i]) receiver.heard[i] = true;
}

Status Proof::receive(int rank, std::size_t number, Lane& own) {
  const Step& step = steps_[static_cast<std::size_t>(rank)][number];
  std::vector<std::shared_ptr<const Message>> messages;
  std::vector<const Stretches*> operands;
  for (const int peer : schedule_.peers(rank, step)) {
    Queue& waiting = queue(peer, rank, step.channel);
    const auto& message = messages.emplace_back(std::move(waiting.messages[waiting.taken++]));
    PACE_TRY(check_message(rank, number, peer, *message));
    hear(*message, own);
    operands.push_back(&message->data);
  }
  Stretches local;
  if (step.own >= 0) {
    PACE_TRY(read(rank, number, step.source, local));
    operands.insert(operands.begin() + step.own, &local);
  }
  if (operands.size() == 1) {
    write(rank, step.target, *operands[0]);
    return {};
  }
  Stretches result;
  PACE_TRY(fold(rank, number, operands, step.target.count, result));
  write(rank, step.target, result);
  return {};
}

Status Proof::read(int rank, std::size_t step, const Region& region, Stretches& data) {
  if (barrier_) return {};
  const auto [memory, offset] = locate(rank, region.buffer, region.offset);
  auto found = contents(rank, memory).read(offset, region.count);
  if (!found) return wrong(fmt::format("{}: it reads what nothing has written", where(rank, step)));
  data = std::move(*found);
  const auto is_input = [&](const Stretch& stretch) {
    if (stretch.expression != static_cast<Expression>(rank)) return false;
    if (region.buffer == Buffer::input) return stretch.shift == static_cast<std::ptrdiff_t>(region.offset);
    return region.buffer == Buffer::output && problem_.in_place;
  };
  if (region.buffer == Buffer::input && !std::all_of(data.begin(), data.end(), is_input))
    return wrong(fmt::format("{}: it reads input that has been overwritten", where(rank, step)));
  if (region.buffer == Buffer::output && reduces(problem_.collective) &&
      std::any_of(data.begin(), data.end(), is_input))
    return wrong(fmt::format("{}: it reads the rank's input as output", where(rank, step)));
  return {};
}

void Proof::write(int rank, const Region& region, const Stretches& data) {
  if (barrier_) return;
  const auto [memory, offset] = locate(rank, region.buffer, region.offset);
  contents(rank, memory).write(offset, region.count, data);
}

Status Proof::fold(int rank, std::size_t step, std::span<const Stretches* const> operands, std::size_t count,
                   Stretches& result) {
  if (barrier_) return {};
  // Where the operands are cut differently, the fold is cut at every operand's borders.
  std::vector<Stretches::const_iterator> at;
  for (const Stretches* operand : operands) at.push_back(operand->begin());
  std::vector<Expression> values(operands.size());
  for (std::size_t begin = 0; begin < count;) {
    std::size_t end = count;
    for (std::size_t i = 0; i < at.size(); ++i) {
      end = std::min(end, at[i]->end);
      values[i] = at[i]->expression;
      if (at[i]->shift != at[0]->shift) {
        return wrong(fmt::format("{}: it folds {} with {}", where(rank, step), describe(*at[0], begin),
                                 describe(*at[i], begin)));
      }
    }
    if (const auto twice = expressions_.in_common(values))
      return wrong(fmt::format("{}: it folds the contribution of rank {} twice", where(rank, step), *twice));
    result.push_back({begin, end, expressions_.fold(values), at[0]->shift});
    for (auto& stretch : at)
      if (stretch->end == end) ++stretch;
    begin = end;
  }
  return {};
}

Status Proof::explain_blocked() {
  for (int number = 0; number < ranks_ * channels_; ++number) {
    Lane& own = lane(number);
    if (own.next == own.steps.size()) continue;
    const int rank = number / channels_;
    const std::size_t i = own.steps[own.next];
    const Step& step = steps_[static_cast<std::size_t>(rank)][i];
    if (step.action == Action::send) {
      return wrong(fmt::format("{}: it waits for ever, with {} messages under way", where(rank, i),
                               own.receivers_left.size() - own.oldest));
    }
    for (const int peer : schedule_.peers(rank, step)) {
      if (queue(peer, rank, step.channel).waiting() > 0) continue;
      Lane& sender = lane(peer * channels_ + step.channel);
      if (sender.next == sender.steps.size())
        return wrong(fmt::format("{}: it waits for ever, rank {} sends no more", where(rank, i), peer));
      return wrong(
          fmt::format("{}: it waits for ever, and so does {}", where(rank, i), where(peer, sender.steps[sender.next])));
    }
  }
  for (int from = 0; from < ranks_; ++from)
    for (int to = 0; to < ranks_; ++to)
      for (int channel = 0; channel < channels_; ++channel)
        if (const std::size_t left = queue(from, to, channel).waiting(); left > 0)
          return wrong(
              fmt::format("rank {} never takes {} messages of rank {} on channel {}", to, left, from, channel));
  return {};
}

// ---- What it must have led to ----

std::string Proof::describe(const Stretch& value, std::size_t at) const {
  const std::ptrdiff_t element = static_cast<std::ptrdiff_t>(at) + value.shift;
  if (value.expression < static_cast<Expression>(ranks_))
    return fmt::format("element {} of rank {}", element, value.expression);
  return fmt::format("element {} folded over {} of {} ranks", element, expressions_.ranks_in(value.expression), ranks_);
}

// Output elements [offset, offset + count) must be those of rank `from` from `first` on; of all ranks, if it is
// nothing.
Status Proof::check_output(int rank, std::size_t offset, std::optional<int> from, std::size_t first) {
  const std::size_t count = problem_.count;
  const auto [memory, place] = locate(rank, Buffer::output, offset);
  const auto found = contents(rank, memory).read(place, count);
  if (!found) {
    return wrong(fmt::format("rank {} ends without all of output [{}, {})", rank, offset, offset + count));
  }
  for (const Stretch& stretch : *found) {
    const bool right = from ? stretch.expression == static_cast<Expression>(*from)
                            : expressions_.ranks_in(stretch.expression) == ranks_;
    if (right && stretch.shift == static_cast<std::ptrdiff_t>(first)) continue;
    const std::size_t element = first + stretch.begin;
    return wrong(fmt::format("rank {} ends with {} in output[{}], not with element {} {}", rank,
                             describe(stretch, stretch.begin), offset + stretch.begin, element,
                             from ? fmt::format("of rank {}", *from) : "folded over all ranks"));
  }
  return {};
}

Status Proof::check_same_bits(int rank) {
  const auto result = [&](int which) {
    const auto [memory, place] = locate(which, Buffer::output, 0);
    return *contents(which, memory).read(place, problem_.count);
  };
  const Stretches first = result(0);
  const Stretches other = result(rank);
  for (std::size_t i = 0; i < first.size() && i < other.size(); ++i) {
    if (first[i] == other[i]) continue;
    const std::size_t element =
        first[i].expression != other[i].expression ? first[i].begin : std::min(first[i].end, other[i].end);
    return wrong(fmt::format("ranks 0 and {} fold element {} in different orders", rank, element));
  }
  return {};
}

Status Proof::check_results() {
  const std::size_t count = problem_.count;
  const int root = problem_.root;
  if (count == 0) return {};
  const auto block = [count](int rank) { return static_cast<std::size_t>(rank) * count; };
  for (int rank = 0; rank < ranks_; ++rank) {
    switch (problem_.collective) {
      case Collective::broadcast: PACE_TRY(check_output(rank, 0, root, 0)); break;
      case Collective::scatter: PACE_TRY(check_output(rank, 0, root, block(rank))); break;
      case Collective::reduce_scatter: PACE_TRY(check_output(rank, 0, std::nullopt, block(rank))); break;
      case Collective::all_reduce:
        PACE_TRY(check_output(rank, 0, std::nullopt, 0));
        PACE_TRY(check_same_bits(rank));
        break;
      case Collective::reduce:
        if (rank == root) PACE_TRY(check_output(rank, 0, std::nullopt, 0));
        break;
      case Collective::gather:
        for (int from = 0; from < ranks_ && rank == root; ++from) PACE_TRY(check_output(rank, block(from), from, 0));
        break;
      case Collective::all_gather:
        for (int from = 0; from < ranks_; ++from) PACE_TRY(check_output(rank, block(from), from, 0));
        break;
      case Collective::all_to_all:
        for (int from = 0; from < ranks_; ++from) PACE_TRY(check_output(rank, block(from), from, block(rank)));
        break;
      default: return wrong(fmt::format("a {} has no proof", title(problem_.collective)));
    }
  }
  return {};
}

Status Proof::check_barrier() {
  for (int rank = 0; rank < ranks_; ++rank) {
    for (int other = 0; other < ranks_; ++other) {
      bool heard = false;
      for (int channel = 0; channel < channels_; ++channel)
        heard = heard || lane(rank * channels_ + channel).heard[static_cast<std::size_t>(other)];
      if (!heard) return wrong(fmt::format("rank {} leaves the barrier without having heard of rank {}", rank, other));
    }
  }
  return {};
}

}  // namespace

Status prove(Schedule& schedule) {
  if (schedule.only()) return wrong(fmt::format("only the steps of rank {} are there to prove", *schedule.only()));
  return Proof(schedule).run();
}

}  // namespace paceline
