// The way of a call through the communicator: its input made ready, its plan run, alone or in a group.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/configuration.h"
#include "base/default_arithmetic.h"
#include "base/reduction.h"
#include "base/rounding.h"
#include "bootstrap/member.h"
#include "comm/communicator.h"
#include "comm/lack.h"
#include "engine/wait.h"

namespace paceline {
namespace {

// Whether this rank only gives in the call: once its messages are there nobody waits for it.
bool only_gives(Collective which, int root, int rank) {
  switch (which) {
    case Collective::broadcast:
    case Collective::scatter: return rank == root;
    case Collective::gather:
    case Collective::reduce: return rank != root;
    case Collective::send: return true;
    default: return false;
  }
}

// The root waits for something long from all ranks: one that goes on to compute would keep its CPU from those that have
// not given theirs.
bool root_waits_long(const Request& request) {
  constexpr std::size_t from = 128 << 10;
  return (request.which == Collective::gather || request.which == Collective::reduce) &&
         request.count * size_of(request.type) >= from;
}

// Whether ranks, so many for each CPU, should begin a call at home. The kernel may leave three of four on one of two
// CPUs; but it also leaves few beside a root that copies for all others (docs/notes/cpu.md).
bool begins_at_home(Collective which, double sharing) {
  using enum Collective;
  if (sharing > 2) return which == all_reduce || which == reduce;
  return sharing > 1 && which != broadcast && which != scatter;
}

// Where a message's data is. An empty one may be nowhere; but its bytes, none, are copied like others.
Memory memory_of(const Request& message) {
  static std::byte somewhere;
  if (message.count == 0) return {&somewhere, &somewhere, nullptr, nullptr};
  return {message.send, message.recv, nullptr, nullptr};
}

}  // namespace

// ---- Calls ----

Status Communicator::prepare(const Request& request, KnownPlan& ready) {
  const std::byte* input = request.send;
  bool in_place = is_in_place(request, rank());
  const bool moves = request.which == Collective::all_to_all && in_place;
  if (moves || (reduces(request.which) && scales_input(request))) {
    const std::size_t elements = input_elements(problem_of(request, size(), false), rank());
    auto operands = operands_.reserve(elements * size_of(request.type));
    if (!operands.ok()) return operands.status();
    if (moves) {
      // There may be no memory for none.
      if (elements > 0) std::memcpy(*operands, input, elements * size_of(request.type));
    } else if (request.op == Operation::premulsum) {
      multiply(request.type, *operands, input, request.factor, elements);
    } else {
      multiply(request.type, *operands, input, scaling_factor(1.0 / size()), elements);
    }
    input = *operands;
    in_place = false;
  }
  auto found = plan_for(request, in_place);
  if (!found.ok()) return found.status();
  const Plan& plan = **found;
  const std::size_t scratch = rounded_up(plan.scratch_bytes, 64);
  std::byte* memory = nullptr;
  if (const std::size_t places = plan.place_bytes * plan.lanes.size(); scratch + places > 0) {
    auto reserved = scratch_.reserve(scratch + places);
    if (!reserved.ok()) return reserved.status();
    memory = *reserved;
  }
  ready = {&plan,
           {input, request.recv, memory, plan.place_bytes == 0 ? nullptr : memory + scratch},
           scratch_.begin(),
           plans_.epoch()};
  return {};
}

Status Communicator::begin(const Request& request, KnownPlan& known) {
  if (known.plan == nullptr || known.epoch != plans_.epoch() || known.arena != scratch_.begin())
    PACE_TRY(prepare(request, known));
  const Call call = last_ = serving(make_call(request.which, request.type, request.op, request.root, request.count,
                                              last_.sequence + 1, known.plan->way),
                                    request.serves);
  // Relaxed: read by the monitor, for diagnoses only.
  membership_->activity.sequence.store(call.sequence, std::memory_order_relaxed);
  membership_->activity.what.store(call.what, std::memory_order_relaxed);
  if (connections_.single_copy) {
    const bool use = known.plan->single_copy;
    connections_.shared_memory->use_single_copy(use, use ? input_of(request, known) : std::span<const std::byte>());
  }
  execution_->clear();
  if (!execution_->take_at_once(*known.plan, call, known.memory) &&
      execution_->add(*known.plan, call, known.memory) < 0)
    announce(call);
  // An input that was scaled or moved must be so again.
  if (known.memory.input != request.send) known.plan = nullptr;
  return {};
}

std::span<const std::byte> Communicator::input_of(const Request& request, const KnownPlan& known) const {
  const Problem problem = problem_of(request, size(), is_in_place(request, rank()));
  return {known.memory.input, input_elements(problem, rank()) * size_of(request.type)};
}

// A call without steps: other ranks, should they have called it with elements, will not hear of it otherwise.
void Communicator::announce(const Call& call) {
  for (Transport* transport : wiring_.transports)
    if (transport != nullptr) transport->announce(call);
}

void Communicator::finish(const Request& request) const {
  if (request.op == Operation::avg && reduces(request.which) && !averages_first(request.type))
    divide(request.type, request.recv, size(), output_elements(problem_of(request, size(), false), rank()));
}

// On the monitor's thread, for microseconds, of the last call. Where this rank takes something it has found out itself.
Status Communicator::look() {
  Use use = Use::none;
  if (!use_.compare_exchange_strong(use, Use::look, std::memory_order_acquire)) return {};  // acquire: as a call's
  Status found;
  if (last_.sequence != 0 && only_gives(collective_of(last_), root_of(last_), rank()))
    for (Transport* transport : wiring_.transports)
      if (transport != nullptr && found.ok() && transport->compare(-1, last_, false) == Attempt::failed)
        found = transport->failure();
  exit();
  return found;
}

// A rank's messages to itself, in order. Before any other message has its number: an error here leaves the ranks in
// step.
Status Communicator::deliver_to_self(std::span<const Request* const> messages) const {
  auto own = messages_to_self(messages, rank());
  if (!own.ok()) return own.status();
  for (const auto& [send, receive] : *own)
    if (const std::size_t bytes = send->count * size_of(send->type); bytes != 0)
      std::memmove(receive->recv, send->send, bytes);
  return {};
}

// Sends and receives of a group: those of one direction between two ranks one after another, all others side by side.
Status Communicator::begin_messages(std::span<const Request* const> messages) {
  if (connections_.single_copy) connections_.shared_memory->use_single_copy(configuration().single_copy == "on");
  execution_->clear();
  ++groups_;
  for (const Request* message : messages) {
    if (message->root == rank()) continue;
    auto plan = plan_for(*message, false);
    if (!plan.ok()) return plan.status();
    auto& side = message->which == Collective::send ? messages_to_ : messages_from_;
    Messages& earlier = side[static_cast<std::size_t>(message->root)];
    const Call call =
        make_call(message->which, message->type, Operation::sum, 0, message->count, ++earlier.count, (*plan)->way);
    earlier.lane = execution_->add(**plan, call, memory_of(*message), earlier.group == groups_ ? earlier.lane : -1);
    earlier.group = groups_;
  }
  return {};
}

// A send or receive that is no part of a group.
Status Communicator::begin_message(const Request& message, KnownPlan& known) {
  if (message.root == rank()) {
    const Request* const one = &message;
    execution_->clear();
    return deliver_to_self({&one, 1});
  }
  if (known.plan == nullptr || known.epoch != plans_.epoch()) {
    auto plan = plan_for(message, false);
    if (!plan.ok()) return plan.status();
    known = {*plan, memory_of(message), nullptr, plans_.epoch()};
  }
  auto& side = message.which == Collective::send ? messages_to_ : messages_from_;
  const Call call = make_call(message.which, message.type, Operation::sum, 0, message.count,
                              ++side[static_cast<std::size_t>(message.root)].count, known.plan->way);
  if (connections_.single_copy) connections_.shared_memory->use_single_copy(configuration().single_copy == "on");
  execution_->clear();
  if (!execution_->take_at_once(*known.plan, call, known.memory)) execution_->add(*known.plan, call, known.memory);
  return {};
}

void Communicator::end(const Status& status) {
  if (!status.ok() && membership_->failed() && connections_.shared_memory) connections_.shared_memory->withdraw();
  if (status.ok() && connections_.shared_memory) connections_.shared_memory->end_wait();
  membership_->activity.inside.store(Inside::nothing, std::memory_order_relaxed);
  membership_->activity.waiting_for.store(-1, std::memory_order_relaxed);
  plans_.trim();
}

// Its peers will not get what they wait for: they learn why.
void Communicator::break_off(std::string_view how) {
  const auto& self = session_->members()[static_cast<std::size_t>(session_->rank())];
  Status::Detail detail;
  detail.code = Code::remote;
  detail.rank = rank();
  detail.host = self.host;
  detail.message = fmt::format("{} {}", named(rank(), self), how);
  (void)membership_->report(Status(std::move(detail)));
}

Status Communicator::not_begun(Collective which, const Status& why) {
  if (is_lack(why)) break_off(fmt::format("could not begin its {}: {}", title(which), why.message()));
  return why;
}

Status Communicator::run(const Request& request, KnownPlan& known) {
  const DefaultArithmetic arithmetic;
  PACE_TRY(known_failure());
  const bool message = is_message(request.which);
  Status begun = begun_by([&] { return message ? begin_message(request, known) : begin(request, known); });
  if (!begun.ok()) return not_begun(request.which, begun);
  membership_->activity.inside.store(message ? Inside::messages : Inside::collective, std::memory_order_relaxed);
  Status status;
  if (!execution_->empty()) {
    status = done_by("in a call", [&] {
      if (begins_at_home(request.which, connections_.sharing)) wiring_.home.go();
      return paceline::run(*execution_);
    });
  }
  // What a transport lacked has ended the communicator already.
  if (!status.ok() && !membership_->failed())
    break_off(fmt::format("could not go on with its {}: {}", title(request.which), status.message()));
  if (only_gives(request.which, request.root, rank())) {
    if (!connections_.oversubscribed && connections_.shared_memory) connections_.shared_memory->fetch_ahead();
    if (connections_.oversubscribed && root_waits_long(request)) sched_yield();
  }
  if (status.ok() && !message) finish(request);
  end(status);
  return status;
}

Status Communicator::run_group(std::span<Communicator* const> communicators, std::span<const Request> calls) {
  const DefaultArithmetic arithmetic;
  Parts parts = parts_of(communicators, calls);
  for (auto& [communicator, part] : parts) PACE_TRY(communicator->deliver_to_self(part.messages));

  Status status;
  for (auto& [communicator, part] : parts)
    if (status.ok()) status = communicator->known_failure();
  const bool was_well = status.ok();
  std::vector<std::pair<Communicator*, Part*>> all;
  std::vector<Execution*> executions;
  const Communicator* not_begun = nullptr;
  const auto begin_turn = [&](std::size_t number) -> Status {
    auto& [communicator, part] = all[number];
    Status begun = communicator->begin_turn(*part);
    if (!begun.ok()) not_begun = communicator;
    return begun;
  };
  for (auto& [communicator, part] : parts) {
    all.emplace_back(communicator, &part);
    executions.push_back(communicator->execution_.get());
    if (status.ok()) status = begin_turn(all.size() - 1);
  }
  // No communicator waits for another one's turn: other ranks may make these calls one after another, in any order of
  // the communicators.
  const auto go_on = [&](std::size_t number, bool& begun) -> Status {
    auto& [communicator, part] = all[number];
    if (!part->begun) return {};
    communicator->end_turn(*part);
    PACE_TRY(begin_turn(number));
    begun = part->begun;
    return {};
  };
  if (status.ok()) status = done_by("in a group of calls", [&] { return paceline::run(executions, go_on); });
  if (status.ok()) return status;
  // Of several that have ended the first one's: each numbers the ranks in its own way.
  const auto ended = std::ranges::find_if(communicators, [](const auto* one) { return !one->known_failure().ok(); });
  if (ended != communicators.end()) status = (*ended)->known_failure();
  for (auto& [communicator, part] : parts)
    if (part.begun && communicator->execution_->has_ended()) communicator->end_turn(part);
  break_off_undone(parts, not_begun, was_well ? waited_in_vain(parts) : nullptr, status);
  for (auto& [communicator, part] : parts)
    if (part.begun) communicator->end(status);
  return status;
}

// The part's next turn; after the last one nothing begins.
Status Communicator::begin_turn(Part& part) {
  if (!part.has(part.ended)) return {};
  KnownPlan unknown;
  PACE_TRY(begun_by([&] {
    return part.ended == 0 ? begin_messages(part.messages) : begin(*part.collectives[part.ended - 1], unknown);
  }));
  membership_->activity.inside.store(part.ended == 0 ? Inside::messages : Inside::collective,
                                     std::memory_order_relaxed);
  part.begun = true;
  return {};
}

void Communicator::end_turn(Part& part) {
  if (part.ended > 0) finish(*part.collectives[part.ended - 1]);
  ++part.ended;
  part.begun = false;
  end(Status());
}

// In whose call of a group a rank was late, which ended it; nullptr: in none.
const Communicator* Communicator::waited_in_vain(const Parts& parts) {
  const auto found = std::ranges::find_if(
      parts, [](const auto& part) { return part.second.begun && part.first->known_failure().code() == Code::timeout; });
  return found == parts.end() ? nullptr : found->first;
}

// A group has failed: whoever waits for the rest of its calls will not get it. Who was late for one of its calls is
// named to them, too, and not this rank.
void Communicator::break_off_undone(const Parts& parts, const Communicator* not_begun, const Communicator* in_vain,
                                    const Status& cause) {
  // Where none has failed this rank has, in the midst of all.
  const bool here = not_begun == nullptr &&
                    std::ranges::none_of(parts, [](const auto& part) { return part.first->membership_->failed(); });
  for (const auto& [communicator, part] : parts) {
    if (!part.is_owed(communicator->rank())) continue;
    const bool failed_here = here || communicator == not_begun;
    const int late = failed_here || in_vain == nullptr ? -1 : communicator->late_in(*in_vain);
    if (late >= 0)
      communicator->break_off_group_for(late, in_vain->known_failure());
    else
      communicator->break_off_group(cause, failed_here);
  }
}

void Communicator::break_off_group(const Status& cause, bool here) {
  if (membership_->failed()) return;
  break_off(
      here ? fmt::format("broke off its group of calls: {}", cause.message())
           : fmt::format("broke off its group of calls: another communicator failed in it (in that one's ranks: {})",
                         cause.message()));
}

int Communicator::late_in(const Communicator& other) const {
  const int late = other.known_failure().detail().rank;
  if (late < 0 || other.session_ != session_) return -1;
  const auto found = std::ranges::find(session_ranks_, other.session_ranks_[static_cast<std::size_t>(late)]);
  const auto rank_here = static_cast<int>(found - session_ranks_.begin());
  return found == session_ranks_.end() || rank_here == rank() ? -1 : rank_here;
}

void Communicator::break_off_group_for(int late, const Status& cause) {
  if (membership_->failed()) return;
  const int in_session = session_ranks_[static_cast<std::size_t>(late)];
  const auto& member = session_->members()[static_cast<std::size_t>(in_session)];
  Status::Detail detail;
  detail.code = Code::timeout;
  detail.rank = late;
  detail.host = member.host;
  detail.peer = rank();
  detail.message =
      fmt::format("{} was late in rank {}'s group of calls, for another communicator's (in that one's ranks: {})",
                  named(late, member), rank(), cause.message());
  (void)membership_->report(Status(std::move(detail)));
}

Communicator::Parts Communicator::parts_of(std::span<Communicator* const> communicators,
                                           std::span<const Request> calls) {
  Parts parts;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Part& part = parts[communicators[i]];
    (is_message(calls[i].which) ? part.messages : part.collectives).push_back(&calls[i]);
  }
  for (auto& [communicator, part] : parts) part.ended = part.messages.empty() ? 1 : 0;
  return parts;
}

bool Communicator::Part::is_owed(int rank) const {
  if (ended > 0) return ended <= collectives.size();
  return !collectives.empty() ||
         std::ranges::any_of(messages, [&](const Request* message) { return message->root != rank; });
}

}  // namespace paceline
