#include "comm/communicator.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "base/configuration.h"
#include "base/cpus.h"
#include "base/index.h"
#include "base/log.h"
#include "bootstrap/deadline.h"
#include "comm/topology_file.h"
#include "comm/trace.h"
#include "tuning/tuning_file.h"

namespace paceline {
namespace {

// Once a process.
void warn_of_misspelt_variables() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const std::string& one : misspelt_at_start()) log(LogLevel::warn, 0, "{}", one);
  });
}

// Whether a member is on this one's node.
auto is_beside(const Member& one) {
  return [&](const Member& member) { return member.node == one.node; };
}

// Of rank `rank` of these members, the session's `session_rank`: a CPU for each of the job's ranks on this node, and
// for ranks in containers of one machine. Where there are not as many, the communicator's ranks count alone, for the
// others may be idle: of two for each CPU those share one that are as far apart as there are CPUs; of more, neighbours.
HomeCpu home_of(const std::vector<Member>& everyone, int session_rank, const std::vector<Member>& members, int rank) {
  const auto beside = is_beside(everyone[at(session_rank)]);
  const auto first = std::ranges::find_if(everyone, beside);
  auto own = std::count_if(first, everyone.begin() + session_rank, beside);
  const auto cpus = static_cast<std::ptrdiff_t>(own_cpu_share().cpus.count());
  if (std::count_if(first, everyone.end(), beside) > cpus) {
    const auto ranks = std::ranges::count_if(members, beside);
    own = std::count_if(members.begin(), members.begin() + rank, beside);
    if (ranks > 2 * cpus) own = own * cpus / ranks;
  }
  return HomeCpu(static_cast<int>(first - everyone.begin() + own));
}

}  // namespace

Communicator::Communicator(std::shared_ptr<Session> session, std::uint64_t id, std::vector<int> session_ranks, int rank,
                           const CommunicatorOptions& options)
    : session_(std::move(session)),
      session_ranks_(std::move(session_ranks)),
      options_(options),
      membership_(session_->enter(id, session_ranks_, rank)),
      id_(id) {
  const Configuration& defaults = configuration();
  if (options_.timeout <= 0) options_.timeout = defaults.timeout;
  if (options_.join_timeout <= 0) options_.join_timeout = defaults.join_timeout;
  if (options_.algorithm.empty()) options_.algorithm = defaults.algorithm;
  if (options_.chunk == 0) options_.chunk = defaults.chunk;
  wiring_.rank = rank;
  wiring_.ranks = static_cast<int>(session_ranks_.size());
  wiring_.timeout = options_.timeout;
  messages_to_.resize(session_ranks_.size());
  messages_from_.resize(session_ranks_.size());
}

Communicator::~Communicator() { membership_->look_by({}); }

std::unique_ptr<Communicator> Communicator::first_of(std::shared_ptr<Session> session,
                                                     const CommunicatorOptions& options) {
  std::vector<int> everyone(static_cast<std::size_t>(session->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const int rank = session->rank();
  return std::unique_ptr<Communicator>(new Communicator(std::move(session), 1, std::move(everyone), rank, options));
}

Result<std::unique_ptr<Communicator>> Communicator::create(std::shared_ptr<Session> session,
                                                           const CommunicatorOptions& options) {
  auto made = first_of(std::move(session), options);
  PACE_TRY(made->connect_first());
  made->look_behind_calls();
  return made;
}

Status Communicator::connect_first() {
  const auto deadline = after(options_.join_timeout);
  if (rank() == 0) warn_of_misspelt_variables();
  std::string tuning;
  TopologyFile topology;
  Status refused;
  if (rank() == 0 && size() > 1) {
    tuning = tuning_of_this_machine(rank());
    if (topology_ == nullptr) refused = read_topology_file(topology);
  }
  const auto gather = [&](std::span<const std::byte> mine) {
    return session_->exchange(mine, deadline, membership_.get());
  };
  PACE_TRY(connect(gather, refused, {tuning.size(), topology.text.size(), topology.gpus}));
  PACE_TRY(check_places());
  PACE_TRY(measure_links());
  PACE_TRY(share(std::move(tuning), std::move(topology.text)));
  PACE_TRY(simulate_on_links());
  return connect_devices_in_use();
}

// What rank 0 has read goes to all as the first broadcasts, so that all choose alike whatever files they have.
Status Communicator::share(std::string tuning, std::string topology) {
  const auto give = [&](std::string& text, std::uint64_t length) -> Status {
    text.resize(length);
    auto* bytes = reinterpret_cast<std::byte*>(text.data());
    return run({.which = Collective::broadcast, .send = bytes, .recv = bytes, .count = text.size()});
  };
  if (connections_.announced.topology > 0) {
    PACE_TRY(give(topology, connections_.announced.topology));
    PACE_TRY(use_topology(topology));
  }
  if (connections_.announced.tuning > 0) {
    PACE_TRY(give(tuning, connections_.announced.tuning));
    PACE_TRY(set_tuning(tuning));
  }
  return {};
}

Status Communicator::connect(const Gather& gather, const Status& refused, const Announced& announced) {
  std::vector<Member> members;
  for (int rank : session_ranks_) members.push_back(session_->members()[static_cast<std::size_t>(rank)]);
  const Status named = set_algorithm(options_.algorithm);
  auto connected = paceline::connect(members, rank(), id_, *membership_, session_->secret(), gather,
                                     after(options_.join_timeout), refused.ok() ? named : refused, announced);
  if (!connected.ok()) return connected.status();
  connections_ = std::move(*connected);
  if (connections_.shared_memory)
    membership_->when_failed(
        this, [shown = connections_.shared_memory.get()](const Status& reason) { shown->show_failure(reason); });
  wiring_.transports[TransportNumber::shared_memory] = connections_.shared_memory.get();
  wiring_.transports[TransportNumber::tcp] = connections_.tcp.get();
  wiring_.routes = connections_.routes;
  wiring_.membership = membership_.get();
  const auto& everyone = session_->members();
  wiring_.node_ranks = static_cast<int>(std::ranges::count_if(everyone, is_beside(everyone[at(session_->rank())])));
  wiring_.oversubscribed = connections_.oversubscribed;
  wiring_.home = home_of(session_->members(), session_->rank(), members, rank());
  execution_ = std::make_unique<Execution>(wiring_);
  return {};
}

Status Communicator::failure() const {
  if (!membership_->failed() && connections_.shared_memory)
    if (Status elsewhere = connections_.shared_memory->failure_elsewhere(); !elsewhere.ok())
      return membership_->report(std::move(elsewhere));
  return known_failure();
}

Status Communicator::known_failure() const {
  if (membership_->failed()) return membership_->failure();
  // Acquire: as it was connected; another thread may be making the first call on GPU memory.
  const DeviceCalls* const watched = watched_.load(std::memory_order_acquire);
  return watched == nullptr ? Status() : watched->failure();
}

Status Communicator::leave() {
  if (device_calls_ != nullptr) device_calls_->finish();
  // relaxed: this thread's own
  const std::uint32_t last = membership_->activity.sequence.load(std::memory_order_relaxed);
  if (!membership_->leave()) return {};
  const auto& shared_memory = connections_.shared_memory;
  // At the end, also where that is a lack of memory: whoever sees it may let go of what it has sent.
  struct Departure {
    SharedMemoryTransport* transport;
    std::uint32_t last;
    ~Departure() {
      if (transport != nullptr) transport->show_departure(last);
    }
  } const departure{shared_memory.get(), last};
  const bool has_failed = !known_failure().ok() || (shared_memory && !shared_memory->failure_elsewhere().ok());
  Status untaken;
  if (!has_failed)
    for (Transport* transport : wiring_.transports)
      if (transport != nullptr && untaken.ok()) untaken = transport->untaken();
  return untaken;
}

void Communicator::look_behind_calls() {
  if (size() > 1) membership_->look_by([this] { return look(); });
}

bool Communicator::enter_after_look() {
  Use use = Use::look;
  while (use == Use::look) {
    sched_yield();
    use = Use::none;
    if (use_.compare_exchange_strong(use, Use::call, std::memory_order_acquire)) return true;  // acquire: as in enter()
  }
  return false;
}

Result<std::uint64_t> Communicator::direct_calls() {
  if (!gpus_direct()) return std::uint64_t{0};
  return device_calls_->engine()->direct_calls();
}

void Communicator::abort() {
  aborts_.fetch_add(1, std::memory_order_relaxed);  // only asked whether there is one more
  Status::Detail detail;
  detail.code = Code::aborted;
  detail.rank = rank();
  detail.message = fmt::format("rank {} aborted the communicator", rank());
  (void)membership_->report(Status(std::move(detail)));
  const std::lock_guard lock(making_mutex_);
  if (made_now_ != nullptr) made_now_->give_up();
}

void Communicator::give_up() {
  Status::Detail detail;
  detail.code = Code::aborted;
  detail.rank = rank();
  detail.message = fmt::format("rank {} gave it up: the communicator that it comes from was aborted", rank());
  (void)membership_->report(Status(std::move(detail)));
}

Communicator::Making::Making(Communicator& from, Communicator& made, std::uint32_t aborts) : from_(from) {
  const std::lock_guard lock(from.making_mutex_);
  from.made_now_ = &made;
  if (from.aborts_.load(std::memory_order_relaxed) != aborts)
    made.give_up();  // relaxed: only whether there is one more
}

Communicator::Making::~Making() {
  const std::lock_guard lock(from_.making_mutex_);
  from_.made_now_ = nullptr;
}

Result<std::vector<Bytes>> Communicator::gather_bytes(std::span<const std::byte> mine, Serves what) {
  Bytes all(mine.size() * static_cast<std::size_t>(size()));
  Request request;
  request.which = Collective::all_gather;
  request.send = mine.data();
  request.recv = all.data();
  request.count = mine.size();
  request.serves = what;
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
  const std::uint32_t aborts = aborts_.load(std::memory_order_relaxed);  // only asked whether there is one more
  const Wish mine{color, key};
  const auto shown = show(mine, [&](std::span<const std::byte> card) { return gather_bytes(card, Serves::split); });
  if (!shown.ok()) return shown.status();
  std::vector<std::pair<int, int>> members;  // key, rank here
  for (int r = 0; r < size(); ++r) {
    const Wish& wish = (*shown)[static_cast<std::size_t>(r)];
    if (wish.color == color) members.emplace_back(wish.key, r);
  }
  std::sort(members.begin(), members.end());
  const std::uint32_t child = ++children_;

  // Everyone takes part in the exchanges, those without a color with empty cards.
  const auto among = [&](std::span<const std::byte> card) -> Result<std::vector<Bytes>> {
    auto all = gather_bytes(card, Serves::split);
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
  // Communicators with a common rank have different ids: parent, number of the split, color.
  const std::uint64_t id =
      ((id_ * 0x100000001b3U + child) * 0x100000001b3U + static_cast<std::uint64_t>(color)) | (std::uint64_t{1} << 63);
  std::unique_ptr<Communicator> made(new Communicator(session_, id, std::move(session_ranks), rank_there, options));
  const Making making(*this, *made, aborts);
  PACE_TRY(made->connect(among));
  std::vector<int> gpus;
  for (const auto& [its_key, r] : members)
    if (topology_ != nullptr) gpus.push_back(gpus_[at(r)]);
  made->follow(topology_, std::move(gpus));
  made->links_ = links_;
  PACE_TRY(made->simulate_on_links());
  made->use_profile(profile_);
  PACE_TRY(made->connect_devices_in_use());
  made->look_behind_calls();
  return made;
}

Status Communicator::start_trace() {
  if (trace_ != nullptr)
    return Status(Code::invalid_usage, "a trace of this communicator has been started and not stopped: stop it first");
  trace_ = std::make_unique<Trace>(wiring_);
  return {};
}

Status Communicator::stop_trace(const std::string& path) {
  if (trace_ == nullptr) return Status(Code::invalid_usage, "no trace has been started on this communicator");
  const auto trace = std::move(trace_);
  return trace->write(path);
}

}  // namespace paceline
