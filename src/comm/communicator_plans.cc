// How the communicator chooses the plan of a call, and what it tells about that.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "comm/communicator.h"
#include "engine/plan.h"
#include "tuning/untuned.h"

namespace paceline {
namespace {

Shape shape_of(const Request& request, bool in_place) {
  return {request.count, request.root, request.which, request.type, request.op, in_place};
}

}  // namespace

CostModel Communicator::cost_model(DataType type) const {
  Surroundings where{.ranks = size(),
                     .sharing = connections_.sharing,
                     .largest_message = connections_.largest_message,
                     .several_nodes = connections_.several_nodes,
                     .node_ranks = connections_.nodes.ranks,
                     .order = connections_.nodes.order};
  if (links_ != nullptr) {
    const auto rate = [&](int rank) { return links_->rates[static_cast<std::size_t>(rank)]; };
    where.slowest = {rate(*std::ranges::min_element(session_ranks_, {}, rate)), links_->start};
  }
  CostModel model = untuned_model(where);
  model.element = size_of(type);
  model.paths = paths_;
  return tuned_ ? tuned_->model(model) : model;
}

// Chunks of at most what one message may carry, one after another. Of no elements it is one message all the same, from
// which each side learns what the other called.
Plan Communicator::make_message_plan(const Request& request) const {
  Plan plan;
  plan.element_bytes = size_of(request.type);
  plan.peers = {request.root};
  plan.algorithm = "message";
  const std::size_t total = request.count * plan.element_bytes;
  const std::uint8_t transport = connections_.routes.transport[static_cast<std::size_t>(request.root)];
  plan.chunk_bytes =
      message_chunk(request.count, cost_model(request.type), transport == TransportNumber::shared_memory);
  plan.way = way_of(plan.algorithm, plan.chunk_bytes);
  plan.lanes.resize(1);
  std::size_t begin = 0;
  do {
    PlanStep step;
    step.action = request.which == Collective::send ? Action::send : Action::recv;
    step.transport = transport;
    step.peer_count = 1;
    step.stays = true;
    step.streams = total >= connections_.routes.streaming_from.copies;
    step.source = begin;
    step.target = begin;
    step.bytes = std::min(plan.chunk_bytes, total - begin);
    plan.lanes[0].push_back(step);
    begin += plan.chunk_bytes;
  } while (begin < total);
  return plan;
}

Result<Decision> Communicator::decide(const Request& request, const Problem& problem) const {
  const Means means{connections_.several_nodes, connections_.single_copy, connections_.oversubscribed,
                    connections_.routes.streaming_from};
  return paceline::decide(problem, cost_model(request.type), means, {forced_.algorithm, asked()}, tuned_.get());
}

Result<Plan> Communicator::make_plan(const Request& request, bool in_place) {
  if (is_message(request.which)) return make_message_plan(request);
  const Problem problem = problem_of(request, size(), in_place);
  const auto decision = decide(request, problem);
  if (!decision.ok()) return decision.status();
  const auto& [choice, chunk_bytes, single_copy] = *decision;
  Schedule schedule(problem, choice.parameters, rank());
  choice.algorithm->write(schedule);
  Plan plan = bind(schedule, connections_.routes, request.type, request.op);
  plan.single_copy = single_copy;
  plan.algorithm = choice.algorithm->name;
  plan.chunk_bytes = chunk_bytes;
  plan.way = way_of(plan.algorithm, plan.chunk_bytes, choice.variant.radix);
  plan.predicted_us = choice.predicted_us;
  log(LogLevel::info, rank(), "{} of {} {}: {}, chunks of {} bytes, {:.1f} us predicted", title(request.which),
      request.count, name(request.type), plan.algorithm, plan.chunk_bytes, plan.predicted_us);
  return plan;
}

Result<const Plan*> Communicator::plan_for(const Request& request, bool in_place) {
  const Shape shape = shape_of(request, in_place);
  if (const Plan* plan = plans_.find(shape)) return plan;
  auto plan = make_plan(request, in_place);
  if (!plan.ok()) return plan.status();
  return &plans_.keep(shape, std::move(*plan));
}

Status Communicator::set_algorithm(const std::string& name) {
  auto read = known_variant(name);
  PACE_TRY(read.status());
  forced_ = std::move(*read);
  plans_.clear();
  return {};
}

Result<PlanInfo> Communicator::explain(const Request& request) const {
  const Problem problem = problem_of(request, size(), chosen_in_place(request.which, tuned_.get()));
  const auto decision = decide(request, problem);
  if (!decision.ok()) return decision.status();
  const auto& [choice, chunk_bytes, single_copy] = *decision;
  PlanInfo info;
  info.algorithm = choice.algorithm->name;
  info.chunk_bytes = chunk_bytes;
  info.channels = channels_of(*choice.algorithm, problem, choice.parameters);
  if (choice.algorithm->has_radix) info.radix = choice.parameters.radix;
  info.predicted_us = choice.predicted_us;
  info.transport = transport();
  if (single_copy) info.protocol = Protocol::single_copy;
  return info;
}

std::string_view Communicator::tuned_transport() const {
  const auto& everyone = session_->members();
  const auto node = [&](int rank) { return everyone[static_cast<std::size_t>(rank)].node; };
  const bool one_machine =
      std::ranges::all_of(session_ranks_, [&](int rank) { return node(rank) == node(session_ranks_.front()); });
  return connections_.tcp != nullptr && one_machine ? "loopback" : transport();
}

Status Communicator::set_tuning(std::string_view profile) {
  std::shared_ptr<const Profile> read;
  if (!profile.empty()) {
    auto parsed = read_profile(profile);
    if (!parsed.ok()) return parsed.status();
    read = std::make_shared<const Profile>(std::move(*parsed));
  }
  use_profile(std::move(read));
  return {};
}

void Communicator::use_profile(std::shared_ptr<const Profile> profile) {
  profile_ = std::move(profile);
  tuned_ = profile_ ? Tuned::of(*profile_, tuned_transport(), size(), connections_.nodes.ranks) : nullptr;
  if (tuned_ == nullptr) tuned_ = simulated_;
  plans_.clear();
  if (cuda::GpuEngine* const engine = device_calls_ ? device_calls_->engine() : nullptr)
    engine->use_tables(profile_ ? profile_->gpus : std::span<const GpuSetting>());
}

}  // namespace paceline
