// How the communicator chooses the plan of a call, and what it tells about that.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "algorithms/chunks.h"
#include "base/configuration.h"
#include "base/copies.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/plan.h"

namespace paceline {
namespace {

Shape shape_of(const Request& request, bool in_place) {
  return {request.count, request.root, request.which, request.type, request.op, in_place};
}

// Bytes that a rank reads of another's memory at once: 8 MB each way between two ranks take 648 us so, 675 in pieces of
// 128 KiB.
constexpr std::size_t longest_read = 1 << 20;

// Where one rank's staging would serve all others, each of them reads for itself, all at the same time if they have
// CPUs; and ranks that exchange long blocks save a copy, where the kernel copies well. Elsewhere staging is faster:
// both sides copy at the same time, and no pages are pinned. From which sizes on was measured on 2 to 16 CPUs
// (docs/notes/cpu.md).
bool worth_single_copy(const Request& request, int ranks, bool oversubscribed, Protocol protocol) {
  if (protocol != Protocol::automatic) return protocol == Protocol::single_copy;
  if (configuration().single_copy == "on") return true;
  const std::size_t block = request.count * size_of(request.type);
  const std::size_t all = static_cast<std::size_t>(ranks) * block;
  switch (request.which) {
    case Collective::scatter:
      return block >= 256 << 10 && all >= 2 << 20 && !((oversubscribed || ranks == 2) && rep_movs_is_slow());
    case Collective::all_to_all:
      if (rep_movs_is_slow()) return false;
      if (ranks == 2) return all >= 1 << 20;
      // What is beyond the caches is staged past them.
      return oversubscribed ? all >= 512 << 10 && all <= 8 << 20 : all >= 1 << 20 && all <= 16 << 20;
    default: return false;
  }
}

// CostModel::common_share of what few ranks read in one place and copy past a shared cache that is far: with what
// others cost, broadcasts of 5 and 20 MB on 3 and 4 ranks would go by algorithms that take 1.2 to 1.55 times as long.
constexpr double common_share_of_few = 0.6;
// CostModel::passing_share of two ranks with a CPU each: a byte of their all-reduces costs a fifth less in two steps
// than in one (Xeon and EPYC); with what others cost, those of 50 to 110 KB would go in one.
constexpr double passing_share_of_two = 0.3;

// CostModel::switching: with ranks at home some of a call's steps are between two on one CPU, who go on at once.
double switching_of(double sharing) { return (sharing <= 2 ? 0.75 : 2.0) * sharing; }

// Whether nothing writes to what is read where it lies meanwhile, so that no slot limits how long it is. Nodes may not
// agree on what is read so.
bool gives_only_inputs(Collective which, std::string_view algorithm, int ranks) {
  if (which == Collective::all_to_all) return algorithm == "direct";
  return which == Collective::scatter && (algorithm == "direct" || (algorithm == "knomial" && ranks == 2));
}

}  // namespace

// ---- Plans ----

CostModel Communicator::cost_model(DataType type) const {
  CostModel model;
  model.element = size_of(type);
  model.largest_chunk = connections_.largest_message;
  model.sharing = connections_.sharing;
  if (size() == 2) model.passing_share = passing_share_of_two;
  if (connections_.sharing > 1) {
    model.switching = switching_of(connections_.sharing);
    model.common_share = 0;  // ranks on one CPU have one cache
    model.passing_share = CostModel::passing_share_of(connections_.sharing);
    if (connections_.sharing <= 2) model.homes = static_cast<int>(std::lround(size() / connections_.sharing));
  }
  if (connections_.several_nodes) {
    model.homes = 0;
    double stream = fastest_stream;
    double cable = 3000;
    model.start = 20;
    if (links_ != nullptr) {
      model.start = links_->start;
      for (const int rank : session_ranks_) stream = std::min(stream, links_->rates[static_cast<std::size_t>(rank)]);
      if (stream < fastest_stream) cable = std::min(cable, stream);
    }
    model.chunk_start = model.start;
    model.passing_share = 1;
    model.common_share = 0;
    if (connections_.nodes.ranks > 1) {
      model.node_ranks = connections_.nodes.ranks;
      model.order = connections_.nodes.order;
      model.cable = cable;
      model.stream = stream;
    } else {
      model.bandwidth = stream;
      model.multicast_share = 1;
      if (stream < fastest_stream) model.duplex = 1;  // the link is what is waited for, not the CPU
    }
  }
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
  plan.chunk_bytes = pipeline_chunk(request.count, 1, cost_model(request.type)) * plan.element_bytes;
  // In shared memory a chunk should leave room in the first-level cache beside its copy, or else be well beyond it: 64
  // KB from one CPU of an EPYC to another take 2.8 us in chunks of 8 KiB, 3.8 in chunks of 15 and 3.3 in chunks of 32.
  constexpr std::size_t within = 8 << 10;
  constexpr std::size_t beyond = 32 << 10;
  if (transport == 0 && plan.chunk_bytes < beyond) plan.chunk_bytes = std::min(plan.chunk_bytes, within);
  plan.chunk_bytes = std::min(plan.chunk_bytes, total);
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

Result<Plan> Communicator::make_plan(const Request& request, bool in_place) {
  if (is_message(request.which)) return make_message_plan(request);
  const Problem problem = problem_of(request, size(), in_place);
  CostModel model = cost_model(request.type);
  const StreamingFrom& streaming = connections_.routes.streaming_from;
  if (tuned_ == nullptr && !connections_.several_nodes && streaming.early &&
      output_elements(problem, problem.root) * model.element >= streaming.copies)
    model.common_share = std::min(model.common_share, common_share_of_few);
  const auto reads_in_place = [&](Protocol protocol) {
    return connections_.single_copy && worth_single_copy(request, size(), connections_.oversubscribed, protocol);
  };
  std::string_view algorithm = forced_.algorithm;
  // Who reads its part for itself gains nothing by a tree, whose inner ranks read others' parts as well.
  if (algorithm.empty() && tuned_ == nullptr && !connections_.several_nodes && request.which == Collective::scatter &&
      reads_in_place(forced_.variant.protocol))
    algorithm = "direct";
  auto choice = choose(problem, model, algorithm, forced_chunk(), tuned_.get());
  if (!choice.ok()) return choice.status();
  const bool single_copy = reads_in_place(forced_.variant.protocol != Protocol::automatic ? forced_.variant.protocol
                                                                                          : choice->variant.protocol);
  if (single_copy && !connections_.several_nodes && choice->variant.chunk == 0 &&
      gives_only_inputs(request.which, choice->algorithm->name, size()))
    choice->parameters.chunk = longest_read / model.element;
  Schedule schedule(problem, choice->parameters, rank());
  choice->algorithm->write(schedule);
  Plan plan = bind(schedule, connections_.routes, request.type, request.op);
  plan.single_copy = single_copy;
  plan.algorithm = choice->algorithm->name;
  plan.chunk_bytes = std::min(choice->parameters.chunk, std::max<std::size_t>(1, request.count)) * model.element;
  plan.way = way_of(plan.algorithm, plan.chunk_bytes);
  plan.predicted_us = choice->predicted_us;
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
  auto read = read_variant(name);
  PACE_TRY(read.status());
  if (!read->algorithm.empty() && algorithm_named(read->algorithm) == nullptr) {
    std::string known;
    for (const Algorithm& algorithm : algorithms()) known += fmt::format(" {}", algorithm.name);
    return Status(Code::invalid_argument,
                  fmt::format("there is no algorithm '{}'; there are:{}", read->algorithm, known));
  }
  forced_ = std::move(*read);
  plans_.clear();
  return {};
}

Result<PlanInfo> Communicator::explain(const Request& request) {
  auto plan = plan_for(request, chosen_in_place(request.which, tuned_.get()));
  if (!plan.ok()) return plan.status();
  PlanInfo info;
  info.algorithm = (*plan)->algorithm;
  info.chunk_bytes = (*plan)->chunk_bytes;
  info.channels = static_cast<int>((*plan)->lanes.size());
  info.predicted_us = (*plan)->predicted_us;
  info.transport = transport();
  if ((*plan)->single_copy) info.protocol = Protocol::single_copy;
  plans_.trim();
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
