#include "bootstrap/inquiry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "bootstrap/member.h"

namespace paceline {
namespace {

// "all-reduce #812"
std::string short_name(const Call& call) {
  const std::string text = describe(call);
  return text.substr(0, text.find(" of "));
}

// How many collectives `pong`'s rank is short of the call: sequence numbers may have wrapped.
std::int64_t behind(const Pong& pong, const Call& call) {
  if (pong.state == Pong::State::absent) return std::int64_t{1} << 32;
  return std::max<std::int64_t>(0, static_cast<std::int32_t>(call.sequence - pong.sequence));
}

// Of a rank that is inside no collective of the communicator.
std::string whereabouts(Pong::State state) {
  switch (state) {
    case Pong::State::in_messages: return "inside a send or receive";
    case Pong::State::elsewhere: return "inside a call of another communicator";
    default: return "outside of any call";
  }
}

std::string why_behind(const Pong& pong, const Call& call) {
  const std::string name = short_name(call);
  switch (pong.state) {
    case Pong::State::absent: return "has no such communicator: it has not made it yet, or has given it up";
    case Pong::State::left: return fmt::format("will not enter {}: it left after #{}", name, pong.sequence);
    case Pong::State::outside:
    case Pong::State::elsewhere: return fmt::format("has not entered {}; it is {}", name, whereabouts(pong.state));
    case Pong::State::inside: return fmt::format("has not entered {}; it is still inside #{}", name, pong.sequence);
    case Pong::State::in_messages:
      return fmt::format("has not entered {}; it is {}, after #{}", name, whereabouts(pong.state), pong.sequence);
  }
  return {};
}

std::string why_not_behind(const Pong& pong, const Call& call) {
  if (!is_collective(call)) {
    switch (pong.state) {
      case Pong::State::inside: return fmt::format("is inside another call (collectives so far: {})", pong.sequence);
      case Pong::State::in_messages:
        return fmt::format(
            "is inside a send or receive, too (collectives so far: {}): ranks whose messages wait for each other make "
            "them in a group",
            pong.sequence);
      case Pong::State::outside:
      case Pong::State::elsewhere: return "has not made the matching call; it is " + whereabouts(pong.state);
      default: return why_behind(pong, call);
    }
  }
  if (pong.state == Pong::State::inside)
    return fmt::format("is inside {} and answers, but has not got on", short_name(call));
  return fmt::format("has ended #{} and is {}; what {} needs of it has not arrived", pong.sequence,
                     whereabouts(pong.state), short_name(call));
}

// Who does not wait itself, of those that `rank` waits for, one by the other. Where they wait for each other: `rank`,
// if it is one of them, else any of them.
int end_of_waits(int rank, const std::vector<std::optional<Pong>>& answers) {
  const int ranks = static_cast<int>(answers.size());
  int end = rank;
  for (int step = 0; step < 2 * ranks; ++step) {  // once to the circle, once around it
    const auto& answer = answers[static_cast<std::size_t>(end)];
    if (!answer || answer->waiting_for < 0 || answer->waiting_for >= ranks) return end;
    end = answer->waiting_for;
    if (end == rank) return rank;
  }
  return end;
}

}  // namespace

Status::Detail accusation(const Suspicion& suspicion, int rank, const Member& member, const std::string& why,
                          bool in_turn) {
  std::string whom =
      rank == static_cast<int>(suspicion.waiting_for) ? "it" : fmt::format("rank {}", suspicion.waiting_for);
  if (in_turn) whom += ", which in turn waits for it,";
  Status::Detail detail;
  detail.code = Code::timeout;
  detail.message = fmt::format("{} {}; rank {} waited {:.1f} s for {} in {}", named(rank, member), why,
                               suspicion.waiting, suspicion.seconds, whom, describe(suspicion.call));
  detail.rank = rank;
  detail.host = member.host;
  detail.peer = static_cast<int>(suspicion.waiting);
  detail.collective = title(suspicion.call);
  detail.sequence = suspicion.call.sequence;
  return detail;
}

Status::Detail accuse(const Suspicion& suspicion, const std::vector<std::optional<Pong>>& answers,
                      const std::vector<Member>& members) {
  const auto waited_for = static_cast<int>(suspicion.waiting_for);
  const auto silent = [&](int rank) { return !answers[static_cast<std::size_t>(rank)].has_value(); };
  const int ranks = static_cast<int>(answers.size());

  const int end = end_of_waits(waited_for, answers);
  int culprit = end;
  const auto accused = [&](const std::string& why) {
    return accusation(suspicion, culprit, members[static_cast<std::size_t>(culprit)], why,
                      culprit == end && end != waited_for);
  };
  for (int rank = ranks - 1; rank >= 0 && !silent(end); --rank)
    if (silent(rank)) culprit = rank;
  if (silent(culprit)) return accused(no_answer);

  const auto lag = [&](int rank) { return behind(*answers[static_cast<std::size_t>(rank)], suspicion.call); };
  if (is_collective(suspicion.call))
    for (int rank = 0; rank < ranks; ++rank)
      if (lag(rank) > lag(culprit)) culprit = rank;
  culprit = end_of_waits(culprit, answers);
  const Pong& pong = *answers[static_cast<std::size_t>(culprit)];
  const bool late = is_collective(suspicion.call) && lag(culprit) > 0;
  return accused(late ? why_behind(pong, suspicion.call) : why_not_behind(pong, suspicion.call));
}

}  // namespace paceline
