#include "bootstrap/coordinator.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "bootstrap/inquiry.h"

namespace paceline {

Coordinator::Coordinator(std::vector<Member> members, Send send)
    : members_(std::move(members)), send_(std::move(send)), gone_(members_.size(), false) {}

Coordinator::Ranks Coordinator::everyone(std::optional<std::uint32_t> but) const {
  Ranks ranks;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank)
    if (!gone_[rank] && but != rank) ranks.push_back(rank);
  return ranks;
}

void Coordinator::receive(std::uint32_t from, const ControlMessage& message, Clock::time_point now) {
  std::visit(
      [&](const auto& specific) {
        using Message = std::decay_t<decltype(specific)>;
        if constexpr (std::is_same_v<Message, Suspicion>)
          suspect(from, specific, now);
        else if constexpr (std::is_same_v<Message, Pong>)
          answer(from, specific);
        else if constexpr (requires { handle(from, specific); })
          handle(from, specific);
        // The rest belongs to the rendezvous, or is for rank 0 to say.
      },
      message);
}

void Coordinator::handle(std::uint32_t from, const Contribution& contribution) {
  if (contribution.rank == from) send_(everyone(from), contribution);
}

void Coordinator::handle(std::uint32_t from, const Shortfall& shortfall) { send_(everyone(from), shortfall); }

void Coordinator::handle(std::uint32_t, const Verdict& verdict) { end(verdict.communicator, verdict.reason); }

void Coordinator::handle(std::uint32_t from, const Left& left) {
  auto& who = left_[left.communicator];
  who.emplace_back(from, left.sequence);
  if (who.size() == left.size) left_.erase(left.communicator);  // nobody can wait there any more
  send_(everyone(from), left);
}

void Coordinator::handle(std::uint32_t from, const Farewell&) {
  gone_[from] = true;
  send_(everyone(), Farewell{from});
  note_departure(from, false);
}

void Coordinator::lost(std::uint32_t rank, const std::string& how) {
  if (gone_[rank]) return;
  gone_[rank] = true;
  send_(everyone(), Death{rank, how});
  note_departure(rank, true);
}

// In the inquiries under way, which wait for an answer of this rank that does not come any more.
void Coordinator::note_departure(std::uint32_t rank, bool by_death) {
  for (auto place = inquiries_.begin(); place != inquiries_.end();) {
    const auto here = place++;
    Inquiry& inquiry = here->second;
    const Ranks& ranks = inquiry.suspicion.ranks;
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    if (found == ranks.end()) continue;
    const Pong departed = departure(inquiry, rank);
    // The death of a rank that had not left ends the communicator: it is the answer.
    if (by_death && departed.state != Pong::State::left) {
      inquiries_.erase(here);
      continue;
    }
    inquiry.answers[static_cast<std::size_t>(found - ranks.begin())] = departed;
    conclude_if_complete(here);
  }
}

void Coordinator::suspect(std::uint32_t from, const Suspicion& suspicion, Clock::time_point now) {
  const std::size_t size = suspicion.ranks.size();
  const bool sound = suspicion.waiting < size && suspicion.waiting_for < size &&
                     std::all_of(suspicion.ranks.begin(), suspicion.ranks.end(),
                                 [&](std::uint32_t rank) { return rank < members_.size(); });
  if (!sound) return;
  if (const auto verdict = verdicts_.find(suspicion.communicator); verdict != verdicts_.end()) {
    send_({from}, Verdict{suspicion.communicator, verdict->second});
    return;
  }
  const auto [place, is_first] = inquiries_.try_emplace(suspicion.communicator);
  if (!is_first) return;
  Inquiry& inquiry = place->second;
  inquiry.number = next_inquiry_++;
  inquiry.suspicion = suspicion;
  inquiry.answers.resize(size);
  inquiry.deadline = now + inquiry_time;
  Ranks asked;
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint32_t rank = suspicion.ranks[i];
    if (gone_[rank])
      inquiry.answers[i] = departure(inquiry, rank);
    else
      asked.push_back(rank);
  }
  send_(asked, Ping{inquiry.number, suspicion.communicator});
}

Pong Coordinator::departure(const Inquiry& inquiry, std::uint32_t rank) const {
  if (const auto left = left_.find(inquiry.suspicion.communicator); left != left_.end())
    for (const auto& [who, sequence] : left->second)
      if (who == rank) return {inquiry.number, Pong::State::left, sequence};
  return {inquiry.number, Pong::State::absent, 0};
}

void Coordinator::answer(std::uint32_t from, const Pong& pong) {
  const auto place = std::find_if(inquiries_.begin(), inquiries_.end(),
                                  [&](const auto& entry) { return entry.second.number == pong.inquiry; });
  if (place == inquiries_.end()) return;
  Inquiry& inquiry = place->second;
  for (std::size_t i = 0; i < inquiry.answers.size(); ++i)
    if (inquiry.suspicion.ranks[i] == from)
      inquiry.answers[i] = pong.state == Pong::State::absent ? departure(inquiry, from) : pong;
  conclude_if_complete(place);
}

void Coordinator::conclude_if_complete(Inquiries::iterator place) {
  const auto& answers = place->second.answers;
  if (std::all_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.has_value(); }))
    conclude(place);
}

void Coordinator::conclude(Inquiries::iterator place) {
  Inquiry inquiry = std::move(place->second);
  inquiries_.erase(place);
  // Who has left has said how far it came: whether it is stopped since does not matter.
  for (std::size_t i = 0; i < inquiry.answers.size(); ++i) {
    const Pong departed = departure(inquiry, inquiry.suspicion.ranks[i]);
    if (!inquiry.answers[i] && departed.state == Pong::State::left) inquiry.answers[i] = departed;
  }
  std::vector<Member> members;
  for (const std::uint32_t rank : inquiry.suspicion.ranks) members.push_back(members_[rank]);
  end(inquiry.suspicion.communicator, accuse(inquiry.suspicion, inquiry.answers, members));
}

void Coordinator::end(std::uint64_t communicator, const Status::Detail& reason) {
  if (!verdicts_.try_emplace(communicator, reason).second) return;
  inquiries_.erase(communicator);
  left_.erase(communicator);
  send_(everyone(), Verdict{communicator, reason});
}

void Coordinator::tick(Clock::time_point now) {
  for (auto place = inquiries_.begin(); place != inquiries_.end();) {
    const auto next = std::next(place);
    if (place->second.deadline <= now) conclude(place);
    place = next;
  }
}

std::optional<Clock::time_point> Coordinator::next_tick() const {
  std::optional<Clock::time_point> first;
  for (const auto& [communicator, inquiry] : inquiries_)
    if (!first || inquiry.deadline < *first) first = inquiry.deadline;
  return first;
}

}  // namespace paceline
