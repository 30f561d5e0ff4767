#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "algorithms/chunks.h"
#include "base/configuration.h"
#include "base/log.h"
#include "base/reduction.h"
#include "base/streaming.h"
#include "comm/trace.h"
#include "engine/wait.h"
#include "tuning/tuning_file.h"

namespace paceline {
namespace {

bool is_message(Collective which) { return which == Collective::send || which == Collective::recv; }

// Averages of the narrow floats are scaled before they are added, since their sums overflow soon.
bool averages_first(DataType type) {
  return type == DataType::float16 || type == DataType::float8e4m3 || type == DataType::float8e5m2;
}

bool scales_input(const Request& request) {
  return request.op == Operation::premulsum || (request.op == Operation::avg && averages_first(request.type));
}

Shape shape_of(const Request& request, bool in_place) {
  return {request.count, request.root, request.which, request.type, request.op, in_place};
}

// Where one rank's staging would serve all others, each of them reads for itself; and two ranks that exchange long
// blocks, with nothing else to do, save a copy. Elsewhere staging is faster: both sides copy at the same time, and no
// pages are pinned (measured on 2 to 16 CPUs; docs/cpu.md).
bool worth_single_copy(const Request& request, int ranks, Protocol protocol) {
  if (protocol != Protocol::automatic) return protocol == Protocol::single_copy;
  if (configuration().single_copy == "on") return true;
  const std::size_t block = request.count * size_of(request.type);
  switch (request.which) {
    case Collective::scatter: return ranks > 2 && block >= 32 << 10;
    case Collective::all_to_all: return ranks == 2 && block >= 256 << 10;
    default: return false;
  }
}

Problem problem_of(const Request& request, int ranks, bool in_place) {
  Problem problem;
  problem.collective = request.which;
  problem.ranks = ranks;
  problem.root = is_rooted(request.which) ? request.root : 0;
  problem.count = request.count;
  problem.in_place = in_place;
  return problem;
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Session> session, std::vector<int> session_ranks, int rank,
                           const CommunicatorOptions& options)
    : session_(std::move(session)), session_ranks_(std::move(session_ranks)), options_(options) {
  const Configuration& defaults = configuration();
  if (options_.timeout <= 0) options_.timeout = defaults.timeout;
  if (options_.algorithm.empty()) options_.algorithm = defaults.algorithm;
  if (options_.chunk == 0) options_.chunk = defaults.chunk;
  wiring_.rank = rank;
  wiring_.ranks = static_cast<int>(session_ranks_.size());
  wiring_.timeout = options_.timeout;
  messages_to_.resize(session_ranks_.size());
  messages_from_.resize(session_ranks_.size());
}

Communicator::~Communicator() = default;

Result<std::unique_ptr<Communicator>> Communicator::create(std::shared_ptr<Session> session,
                                                           const CommunicatorOptions& options) {
  std::vector<int> everyone(static_cast<std::size_t>(session->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const int rank = session->rank();
  std::unique_ptr<Communicator> made(new Communicator(session, std::move(everyone), rank, options));
  PACE_TRY(made->set_algorithm(made->options_.algorithm));
  const auto deadline = after(configuration().join_timeout);
  std::string tuning = rank == 0 && session->size() > 1 ? tuning_of_this_machine(rank) : "";
  const auto exchange = [&](std::span<const std::byte> mine) { return session->exchange(mine, deadline); };
  PACE_TRY(made->connect(1, exchange, tuning.size()));
  PACE_TRY(made->share_tuning(std::move(tuning)));
  PACE_TRY(made->connect_devices_in_use());
  return made;
}

// What rank 0 has read goes to all as the first broadcast, so that all choose alike whatever files they have.
Status Communicator::share_tuning(std::string text) {
  if (connections_.announced == 0) return {};
  text.resize(connections_.announced);
  auto* bytes = reinterpret_cast<std::byte*>(text.data());
  PACE_TRY(run({.which = Collective::broadcast, .send = bytes, .recv = bytes, .count = text.size()}));
  return set_tuning(text);
}

Status Communicator::connect(std::uint64_t id, const Exchange& exchange, std::size_t announced) {
  id_ = id;
  std::vector<Member> members;
  for (int rank : session_ranks_) members.push_back(session_->members()[static_cast<std::size_t>(rank)]);
  membership_ = session_->enter(id, session_ranks_, rank());
  auto connected = paceline::connect(members, rank(), id, session_->secret(), exchange,
                                     after(configuration().join_timeout), announced);
  if (!connected.ok()) return connected.status();
  connections_ = std::move(*connected);
  wiring_.transports = {connections_.shared_memory.get(), connections_.tcp.get()};
  wiring_.routes = connections_.routes;
  wiring_.membership = membership_.get();
  wiring_.oversubscribed = connections_.oversubscribed;
  const auto& everyone = session_->members();
  const auto here = everyone.begin() + session_->rank();
  wiring_.own_cpu = static_cast<int>(
      std::count_if(everyone.begin(), here, [&](const Member& member) { return member.node == here->node; }));
  execution_ = std::make_unique<Execution>(wiring_);
  return {};
}

Status Communicator::failure() const {
  if (membership_->failed()) return membership_->failure();
  return device_calls_ == nullptr ? Status() : device_calls_->failure();
}

void Communicator::leave() {
  if (device_calls_ != nullptr) device_calls_->finish();
  membership_->leave();
}

Result<std::uint64_t> Communicator::direct_calls() {
  if (!gpus_direct()) return std::uint64_t{0};
  return device_calls_->engine()->direct_calls();
}

void Communicator::abort() {
  Status::Detail detail;
  detail.code = Code::aborted;
  detail.rank = rank();
  detail.message = fmt::format("rank {} aborted the communicator", rank());
  (void)membership_->report(Status(std::move(detail)));
}

// ---- Plans ----

CostModel Communicator::cost_model(DataType type) const {
  CostModel model;
  model.element = size_of(type);
  model.largest_chunk = connections_.largest_message;
  model.sharing = connections_.sharing;
  if (connections_.sharing > 1) model.switching = 2.0 * connections_.sharing;
  if (connections_.several_nodes) {
    constexpr double stream = 2000;
    constexpr double cable = 3000;
    model.start = 20;
    if (connections_.nodes.ranks > 1) {
      model.node_ranks = connections_.nodes.ranks;
      model.order = connections_.nodes.order;
      model.cable = cable;
      model.stream = stream;
    } else {
      model.bandwidth = stream;
      model.multicast_share = 1;
    }
  }
  return tuned_ ? tuned_->model(model) : model;
}

// Chunks of at most what one message may carry, one after another.
Plan Communicator::make_message_plan(const Request& request) const {
  Plan plan;
  plan.element_bytes = size_of(request.type);
  plan.peers = {request.root};
  plan.algorithm = "message";
  const std::size_t total = request.count * plan.element_bytes;
  plan.chunk_bytes = std::min(pipeline_chunk(request.count, 1, cost_model(request.type)) * plan.element_bytes, total);
  plan.lanes.resize(1);
  for (std::size_t begin = 0; begin < total; begin += plan.chunk_bytes) {
    PlanStep step;
    step.action = request.which == Collective::send ? Action::send : Action::recv;
    step.transport = connections_.routes.transport[static_cast<std::size_t>(request.root)];
    step.peer_count = 1;
    step.stays = true;
    step.streams = total >= streaming_from();
    step.source = begin;
    step.target = begin;
    step.bytes = std::min(plan.chunk_bytes, total - begin);
    plan.lanes[0].push_back(step);
  }
  return plan;
}

Result<Plan> Communicator::make_plan(const Request& request, bool in_place) {
  if (is_message(request.which)) return make_message_plan(request);
  const Problem problem = problem_of(request, size(), in_place);
  const CostModel model = cost_model(request.type);
  auto choice = choose(problem, model, forced_.algorithm, forced_chunk(), tuned_.get());
  if (!choice.ok()) return choice.status();
  const Protocol protocol =
      forced_.variant.protocol != Protocol::automatic ? forced_.variant.protocol : choice->protocol;
  Schedule schedule(problem, choice->parameters, rank());
  choice->algorithm->write(schedule);
  Plan plan = bind(schedule, connections_.routes, request.type, request.op);
  plan.single_copy = connections_.single_copy && worth_single_copy(request, size(), protocol);
  plan.algorithm = choice->algorithm->name;
  plan.chunk_bytes = std::min(choice->parameters.chunk, std::max<std::size_t>(1, request.count)) * model.element;
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
  auto plan = plan_for(request, false);
  if (!plan.ok()) return plan.status();
  PlanInfo info;
  info.algorithm = (*plan)->algorithm;
  info.chunk_bytes = (*plan)->chunk_bytes;
  info.channels = static_cast<int>((*plan)->lanes.size());
  info.predicted_us = (*plan)->predicted_us;
  info.transport = transport();
  return info;
}

std::string_view Communicator::transport() const {
  const bool shm = connections_.shared_memory != nullptr;
  const bool tcp = connections_.tcp != nullptr;
  return shm && tcp ? "shm+tcp" : shm ? "shm" : tcp ? "tcp" : "local";
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
  plans_.clear();
  if (cuda::GpuEngine* const engine = device_calls_ ? device_calls_->engine() : nullptr)
    engine->use_tables(profile_ ? profile_->gpus : std::span<const GpuSetting>());
}

// ---- Calls ----

Result<Communicator::Prepared> Communicator::prepare(const Request& request) {
  Prepared ready;
  const std::byte* input = request.send;
  bool in_place = is_in_place(request, rank());
  const bool moves = request.which == Collective::all_to_all && in_place;
  if (moves || (reduces(request.which) && scales_input(request))) {
    const std::size_t elements = input_elements(problem_of(request, size(), false), rank());
    auto operands = operands_.reserve(elements * size_of(request.type));
    if (!operands.ok()) return operands.status();
    if (moves) {
      std::memcpy(*operands, input, elements * size_of(request.type));
    } else if (request.op == Operation::premulsum) {
      multiply(request.type, *operands, input, request.factor.data(), elements);
    } else {
      std::array<std::byte, 8> factor{};
      store_element(request.type, 1.0 / size(), factor.data());
      multiply(request.type, *operands, input, factor.data(), elements);
    }
    input = *operands;
    in_place = false;
  }
  auto plan = plan_for(request, in_place);
  if (!plan.ok()) return plan.status();
  ready.plan = *plan;
  const std::size_t scratch = (ready.plan->scratch_bytes + 63) / 64 * 64;
  std::byte* memory = nullptr;
  if (const std::size_t places = ready.plan->place_bytes * ready.plan->lanes.size(); scratch + places > 0) {
    auto reserved = scratch_.reserve(scratch + places);
    if (!reserved.ok()) return reserved.status();
    memory = *reserved;
  }
  ready.memory = {input, request.recv, memory, ready.plan->place_bytes == 0 ? nullptr : memory + scratch};
  return ready;
}

Status Communicator::begin(const Request& request) {
  auto ready = prepare(request);
  if (!ready.ok()) return ready.status();
  const Call call = make_call(request.which, request.type, request.op, request.root, request.count, ++sequence_);
  // Relaxed: read by the monitor, for diagnoses only.
  membership_->activity.sequence.store(sequence_, std::memory_order_relaxed);
  if (connections_.single_copy) connections_.shared_memory->use_single_copy(ready->plan->single_copy);
  execution_->clear();
  execution_->add(*ready->plan, call, ready->memory);
  return {};
}

void Communicator::finish(const Request& request) const {
  if (request.op == Operation::avg && reduces(request.which) && !averages_first(request.type))
    divide(request.type, request.recv, size(), output_elements(problem_of(request, size(), false), rank()));
}

// A rank's messages to itself, in order. Before any other message has its number: an error here leaves the ranks in
// step.
Status Communicator::deliver_to_self(std::span<const Request* const> messages) const {
  std::vector<const Request*> sends;
  std::vector<const Request*> receives;
  for (const Request* message : messages)
    if (message->root == rank()) (message->which == Collective::send ? sends : receives).push_back(message);
  const auto same = [](const Request* a, const Request* b) { return a->count == b->count && a->type == b->type; };
  if (!std::ranges::equal(sends, receives, same))
    return Status(Code::mismatch,
                  fmt::format("rank {} sends and receives different messages to itself in one group", rank()));
  for (std::size_t i = 0; i < sends.size(); ++i)
    if (const std::size_t bytes = sends[i]->count * size_of(sends[i]->type); bytes != 0)
      std::memmove(receives[i]->recv, sends[i]->send, bytes);
  return {};
}

// Sends and receives of a group: those of one direction between two ranks one after another, all others side by side.
Status Communicator::begin_messages(std::span<const Request* const> messages) {
  if (connections_.single_copy) connections_.shared_memory->use_single_copy(configuration().single_copy == "on");
  execution_->clear();
  PACE_TRY(deliver_to_self(messages));
  ++groups_;
  for (const Request* message : messages) {
    if (message->root == rank()) continue;
    auto plan = plan_for(*message, false);
    if (!plan.ok()) return plan.status();
    auto& side = message->which == Collective::send ? messages_to_ : messages_from_;
    Messages& earlier = side[static_cast<std::size_t>(message->root)];
    const Call call = make_call(message->which, message->type, Operation::sum, 0, message->count, ++earlier.count);
    const int lane = execution_->add(**plan, call, {message->send, message->recv, nullptr, nullptr},
                                     earlier.group == groups_ ? earlier.lane : -1);
    if ((*plan)->lanes[0].empty()) continue;
    earlier.group = groups_;
    earlier.lane = lane;
  }
  return {};
}

Status Communicator::end(Status status) {
  membership_->activity.inside.store(false, std::memory_order_relaxed);
  plans_.trim();
  return status;
}

Status Communicator::run(const Request& request) {
  if (membership_->failed()) return membership_->failure();
  const Request* const one = &request;
  const bool message = is_message(request.which);
  PACE_TRY(message ? begin_messages({&one, 1}) : begin(request));
  membership_->activity.inside.store(true, std::memory_order_relaxed);
  Execution* execution = execution_.get();
  Status status = paceline::run(std::span(&execution, 1));
  if (status.ok() && !message) finish(request);
  return end(std::move(status));
}

Status Communicator::run_group(std::span<Communicator* const> communicators, std::span<const Request> calls) {
  // What each communicator has to do: first its messages, all together, then its collectives, one a turn.
  struct Part {
    std::vector<const Request*> messages;
    std::vector<const Request*> collectives;
  };
  std::map<Communicator*, Part> parts;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Part& part = parts[communicators[i]];
    (is_message(calls[i].which) ? part.messages : part.collectives).push_back(&calls[i]);
  }
  for (auto& [communicator, part] : parts)
    if (communicator->membership_->failed()) return communicator->membership_->failure();

  Status status;
  for (std::size_t turn = 0; status.ok(); ++turn) {
    std::vector<Execution*> executions;
    std::vector<std::pair<Communicator*, const Request*>> begun;
    for (auto& [communicator, part] : parts) {
      const Request* request = nullptr;
      if (turn == 0) {
        if (part.messages.empty()) continue;
        status = communicator->begin_messages(part.messages);
      } else {
        if (turn > part.collectives.size()) continue;
        request = part.collectives[turn - 1];
        status = communicator->begin(*request);
      }
      if (!status.ok()) break;
      communicator->membership_->activity.inside.store(true, std::memory_order_relaxed);
      executions.push_back(communicator->execution_.get());
      begun.emplace_back(communicator, request);
    }
    if (status.ok() && executions.empty() && turn > 0) break;
    if (status.ok()) status = paceline::run(executions);
    for (auto& [communicator, request] : begun) {
      if (status.ok() && request != nullptr) communicator->finish(*request);
      (void)communicator->end(status);
    }
  }
  return status;
}

// ---- Splitting ----

Result<std::vector<Bytes>> Communicator::gather_bytes(std::span<const std::byte> mine) {
  Bytes all(mine.size() * static_cast<std::size_t>(size()));
  Request request;
  request.which = Collective::all_gather;
  request.send = mine.data();
  request.recv = all.data();
  request.count = mine.size();
  PACE_TRY(run(request));
  std::vector<Bytes> gathered;
  for (std::size_t i = 0; i < all.size(); i += mine.size())
    gathered.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i),
                          all.begin() + static_cast<std::ptrdiff_t>(i + mine.size()));
  return gathered;
}

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key, const CommunicatorOptions& options) {
  struct Wish {
    int color;
    int key;
  };
  const Wish mine{color, key};
  auto shown = gather_bytes(std::as_bytes(std::span(&mine, 1)));
  if (!shown.ok()) return shown.status();
  std::vector<std::pair<int, int>> members;  // key, rank here
  for (int r = 0; r < size(); ++r) {
    Wish wish{};
    std::memcpy(&wish, (*shown)[static_cast<std::size_t>(r)].data(), sizeof wish);
    if (wish.color == color) members.emplace_back(wish.key, r);
  }
  std::sort(members.begin(), members.end());
  const std::uint32_t child = ++children_;

  // Everyone takes part in the exchanges, those without a color with empty cards.
  const auto among = [&](std::span<const std::byte> card) -> Result<std::vector<Bytes>> {
    auto all = gather_bytes(card);
    if (!all.ok()) return all.status();
    std::vector<Bytes> ours;
    ours.reserve(members.size());
    for (const auto& [its_key, r] : members) ours.push_back(std::move((*all)[static_cast<std::size_t>(r)]));
    return ours;
  };
  if (color < 0) {
    PACE_TRY(sit_out(among));
    return std::unique_ptr<Communicator>();
  }
  std::vector<int> session_ranks;
  int rank_there = 0;
  for (const auto& [its_key, r] : members) {
    if (r == rank()) rank_there = static_cast<int>(session_ranks.size());
    session_ranks.push_back(session_ranks_[static_cast<std::size_t>(r)]);
  }
  std::unique_ptr<Communicator> made(new Communicator(session_, std::move(session_ranks), rank_there, options));
  PACE_TRY(made->set_algorithm(made->options_.algorithm));
  // Communicators with a common rank have different ids: parent, number of the split, color.
  const std::uint64_t id =
      ((id_ * 0x100000001b3U + child) * 0x100000001b3U + static_cast<std::uint64_t>(color)) | (std::uint64_t{1} << 63);
  PACE_TRY(made->connect(id, among));
  made->use_profile(profile_);
  PACE_TRY(made->connect_devices_in_use());
  return made;
}

Status Communicator::start_trace() {
  trace_.reset();  // an earlier one gives its transports back first
  trace_ = std::make_unique<Trace>(wiring_);
  return {};
}

Status Communicator::stop_trace(const std::string& path) {
  if (trace_ == nullptr) return Status(Code::invalid_usage, "no trace has been started on this communicator");
  const auto trace = std::move(trace_);
  return trace->write(path);
}

}  // namespace paceline
