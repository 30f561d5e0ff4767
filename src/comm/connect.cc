#include "comm/connect.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/configuration.h"
#include "base/copies.h"
#include "base/cpus.h"
#include "base/fixed_text.h"
#include "base/log.h"
#include "bootstrap/launcher.h"
#include "cuda/driver/driver.h"
#include "transport/shared_memory.h"
#include "transport/single_copy.h"
#include "transport/tcp.h"

namespace paceline {
namespace {

// Messages over TCP could be longer; so long ones pipeline.
constexpr std::size_t largest_tcp_message = 128 << 10;

// Bytes a rank and channel: what a small /dev/shm must have room for.
constexpr std::size_t least_default_staging = 256 << 10;

// What a rank shows the others.
struct Card {
  CpuShare cpus;
  std::uint32_t port = 0;
  std::uint32_t gpu = 0;  // this process uses one
  std::int64_t pid = 0;
  std::int32_t job_rank = -1;  // of the job, as a launcher says; -1: none does
  std::uint32_t unused = 0;    // the bytes travel
  Announced announced;
  Probe probe;
  HeapPlace heap;  // descriptor -1: none
  std::array<char, 64> segment{};
  std::uint64_t staging = 0;         // the first of a node: what its layout has
  std::array<char, 224> settings{};  // what plans depend on beside the problem
  Trouble trouble;
};

struct Outcome {
  std::uint32_t single_copy = 0;  // this rank can read the others' memory
  std::uint32_t heaps = 0;        // and map their allocations
  std::uint32_t meeting_port = 0;
  std::uint32_t unused = 0;  // the bytes travel
  Trouble trouble;
};

// Even where nobody can be told any more, this rank's trouble says more than who was missing.
template <class Shown>
Result<std::vector<Shown>> show_trouble(const Shown& mine, const Gather& gather) {
  auto shown = show(mine, gather);
  if (!shown.ok() && mine.trouble.code != Code::ok) return mine.trouble.quoted();
  return shown;
}

template <class Shown>
Status root_cause(const std::vector<Shown>& shown) {
  std::vector<Trouble> troubles;
  troubles.reserve(shown.size());
  for (const Shown& one : shown) troubles.push_back(one.trouble);
  return paceline::root_cause(troubles);
}

std::string settings() {
  const Configuration& c = configuration();
  return fmt::format(
      "PACELINE_ALGORITHM={} PACELINE_CHUNK={} PACELINE_TRANSPORT={} PACELINE_STAGING={} PACELINE_SINGLE_COPY={}",
      c.algorithm, c.chunk, c.transport, c.staging, c.single_copy);
}

Status same_settings(const std::vector<Card>& cards) {
  for (std::size_t i = 1; i < cards.size(); ++i)
    if (cards[i].settings != cards[0].settings) {
      Status::Detail detail;
      detail.code = Code::invalid_usage;
      detail.message = fmt::format("rank {} runs with {}, but rank 0 with {}: set the same on every rank", i,
                                   text_in(cards[i].settings), text_in(cards[0].settings));
      detail.rank = static_cast<int>(i);
      detail.peer = 0;
      return Status(std::move(detail));
    }
  return {};
}

// This process's number among the job's, where there are several; -1: no launcher says one.
int job_rank() {
  static const int rank = [] {  // once: looking for a launcher reads /proc, and every split connects
    const auto launch = find_launch(configuration(), [](const char* variable) { return std::getenv(variable); });
    return launch.ok() && launch->size > 1 ? launch->rank : -1;
  }();
  return rank;
}

// The communicator's ranks on each node, in order.
std::map<std::string, std::vector<int>> nodes_of(const std::vector<Member>& members) {
  std::map<std::string, std::vector<int>> nodes;
  for (std::size_t i = 0; i < members.size(); ++i) {
    // Over TCP alone every rank is a node of its own.
    const std::string node = configuration().transport == "tcp" ? std::to_string(i) : members[i].node;
    nodes[node].push_back(static_cast<int>(i));
  }
  return nodes;
}

class Connecting {
 public:
  Connecting(const std::vector<Member>& members, int rank, std::uint64_t id, Membership& membership,
             const std::string& secret, Clock::time_point deadline, const Status& refused, const Announced& announced)
      : members_(members),
        rank_(rank),
        id_(id),
        membership_(membership),
        secret_(secret),
        deadline_(deadline),
        refused_(refused),
        announced_(announced),
        nodes_(nodes_of(members)) {
    for (const auto& [name, ranks] : nodes_)
      if (std::ranges::find(ranks, rank_) != ranks.end()) node_ = ranks;
  }

  Result<Connections> make(const Gather& gather) {
    auto made = try_to_make(gather);
    if (!made.ok()) {
      if (segment_) segment_->unlink();
      Segment::unlink_left_behind();
    }
    return made;
  }

 private:
  Result<Connections> try_to_make(const Gather& gather) {
    auto cards = show_trouble(prepare(), gather);
    if (!cards.ok()) return cards.status();
    Connections made;
    // Whatever went wrong, both exchanges take place: other communicators may be made in the same ones.
    Status trouble = root_cause(*cards);
    if (trouble.ok()) trouble = same_settings(*cards);
    auto outcomes = show_trouble(trouble.ok() ? reach(*cards, made) : Outcome(), gather);
    PACE_TRY(trouble);
    if (!outcomes.ok()) return outcomes.status();
    PACE_TRY(root_cause(*outcomes));
    if (segment_) segment_->unlink();
    finish(*cards, *outcomes, made);
    return made;
  }

  [[nodiscard]] bool leads() const { return node_.front() == rank_; }
  [[nodiscard]] const Member& me() const { return members_[static_cast<std::size_t>(rank_)]; }

  [[nodiscard]] Trouble trouble(const Status& status) const { return Trouble::of(status, rank_, me().host); }

  // What keeps this rank from taking part, whatever the others show.
  [[nodiscard]] Status refusal() const {
    PACE_TRY(refused_);
    if (nodes_.size() > 1 && configuration().transport == "shm")
      return Status(Code::invalid_usage,
                    "PACELINE_TRANSPORT=shm, but the ranks are on several nodes: set it to auto or tcp");
    return {};
  }

  Card prepare() {
    Card card;
    card.cpus = own_cpu_share();
    card.gpu = cuda::in_use() ? 1 : 0;
    card.pid = getpid();
    card.job_rank = job_rank();
    card.announced = announced_;
    card.probe = probe_.place();
    if (const auto place = heap_probe_.place()) card.heap = *place;
    put(card.settings, settings());
    if (const Status refused = refusal(); !refused.ok()) {
      card.trouble = trouble(refused);
      return card;
    }
    if (node_.size() > 1 && leads()) {
      const Status created = create_segment(card);
      if (!created.ok()) {
        card.trouble = trouble(created);
        return card;
      }
    }
    if (nodes_.size() > 1) {
      auto listener = TcpListener::open(me().address);
      if (!listener.ok()) {
        card.trouble = trouble(listener.status());
        return card;
      }
      card.port = listener->port();
      listener_ = std::move(*listener);
    }
    return card;
  }

  // After all else that needs descriptors: nothing but a shrink fails for want of it.
  std::uint32_t listen_for_meeting() {
    if (members_.size() == 1) return 0;
    auto listener = TcpListener::open(me().address);
    if (!listener.ok()) {
      log(LogLevel::info, rank_, "no place to meet at after a death: {}", listener.status().message());
      return 0;
    }
    meeting_ = std::move(*listener);
    return meeting_->port();
  }

  // With less staging than usual where /dev/shm is small (64 MiB in a container) and the user has not said how much.
  Status create_segment(Card& card) {
    card.staging = configuration().staging != 0 ? configuration().staging : default_staging;
    const std::size_t least = layout(node_, 0).total();
    for (;;) {
      const std::size_t total = layout(node_, card.staging).total();
      auto created = Segment::create(total, least);
      if (created.ok()) {
        segment_ = *created;
        put(card.segment, segment_->name());
        return {};
      }
      const bool full = created.status().detail().system_errno == ENOSPC;
      if (!full || configuration().staging != 0 || card.staging <= least_default_staging) return created.status();
      // Slots have a least size: with many ranks less staging takes no less memory.
      if (layout(node_, card.staging / 2).total() == total) return created.status();
      card.staging /= 2;
    }
  }

  static NodeLayout layout(const std::vector<int>& ranks, std::size_t staging) {
    return {static_cast<int>(ranks.size()), max_channels, staging};
  }

  Outcome reach(const std::vector<Card>& cards, Connections& made) {
    Outcome outcome;
    Status reached = reach_node(cards, outcome);
    if (reached.ok()) reached = reach_others(cards, made);
    if (reached.ok()) outcome.meeting_port = listen_for_meeting();
    // At once: others wait for this rank's connections.
    if (!reached.ok()) reached = membership_.report(trouble(reached).status());
    outcome.trouble = trouble(reached);
    return outcome;
  }

  Status reach_node(const std::vector<Card>& cards, Outcome& outcome) {
    if (node_.size() == 1) return {};
    const Card& leader = cards[static_cast<std::size_t>(node_.front())];
    layout_.emplace(layout(node_, leader.staging));
    if (!leads()) {
      auto opened = Segment::open(leader.segment.data(), layout_->total());
      if (!opened.ok()) return opened.status();
      segment_ = *opened;
    }
    for (int rank : node_) {
      const Card& card = cards[static_cast<std::size_t>(rank)];
      readable_.push_back(rank == rank_ ||
                          (configuration().single_copy != "off" && can_read(static_cast<pid_t>(card.pid), card.probe)));
      mappable_.push_back(rank == rank_ || can_map(static_cast<pid_t>(card.pid), card.heap, card.probe.value));
    }
    outcome.heaps = std::ranges::find(mappable_, false) == mappable_.end() ? 1 : 0;
    outcome.single_copy = std::ranges::find(readable_, false) == readable_.end() ? 1 : 0;
    if (configuration().single_copy == "on" && outcome.single_copy == 0)
      return Status(Code::unsupported,
                    "PACELINE_SINGLE_COPY=on, but the kernel does not let this process read the others' memory "
                    "(process_vm_readv): see kernel.yama.ptrace_scope, and give containers of one node one pid "
                    "namespace");
    return {};
  }

  Status reach_others(const std::vector<Card>& cards, Connections& made) {
    if (nodes_.size() == 1) return {};
    TcpGroup group;
    group.id = id_;
    group.rank = rank_;
    group.size = static_cast<int>(members_.size());
    group.channels = max_channels;
    group.host = me().host;
    group.secret = secret_;
    group.has_left = [&membership = membership_](int rank) { return membership.has_left(rank, nullptr); };
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (std::ranges::find(node_, static_cast<int>(i)) != node_.end()) continue;
      group.peers.push_back(
          {static_cast<int>(i), members_[i].host, members_[i].address, static_cast<std::uint16_t>(cards[i].port)});
    }
    // Before the deadline, so that there is time left to tell each other what went wrong.
    const auto deadline = deadline_ - (deadline_ - Clock::now()) / 8;
    const FileDescriptor ended(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!ended.valid()) return descriptor_error("cannot make an eventfd", errno);
    membership_.when_failed(this, [&](const Status&) { ::eventfd_write(ended.get(), 1); });
    // Whatever comes: it writes to this function's descriptor.
    const std::shared_ptr<void> told(nullptr, [&](void*) { membership_.when_failed(this, nullptr); });
    auto connected = TcpTransport::connect(std::move(*listener_), group, Until(deadline, ended.get()));
    if (!connected.ok()) return connected.status();
    made.tcp = std::move(*connected);
    return {};
  }

  void finish(const std::vector<Card>& cards, const std::vector<Outcome>& outcomes, Connections& made) {
    set_facts(cards, outcomes, made);
    set_routes(made);
    if (node_.size() > 1) share_memory(cards, outcomes, made);
  }

  // All but the ways of messages.
  void set_facts(const std::vector<Card>& cards, const std::vector<Outcome>& outcomes, Connections& made) {
    const auto mine = std::ranges::find(node_, rank_);
    made.node_rank = static_cast<int>(mine - node_.begin());
    made.node_size = static_cast<int>(node_.size());
    made.several_nodes = nodes_.size() > 1;
    const bool shares = std::ranges::any_of(nodes_, [](const auto& node) { return node.second.size() > 1; });
    made.transport = made.several_nodes ? (shares ? "shm+tcp" : "tcp") : (shares ? "shm" : "local");
    std::vector<std::vector<int>> ranks_of_nodes;
    for (const auto& [name, ranks] : nodes_) ranks_of_nodes.push_back(ranks);
    made.nodes = node_order(std::move(ranks_of_nodes));
    made.gpus_in_use = std::ranges::all_of(cards, [](const Card& card) { return card.gpu != 0; });
    made.announced = cards.front().announced;
    for (const Card& card : cards) made.job_ranks.push_back(card.job_rank);
    made.meeting = std::move(meeting_);
    for (const Outcome& outcome : outcomes) made.meeting_ports.push_back(outcome.meeting_port);
    const bool shared_memory_alone = nodes_.size() == 1 && node_.size() > 1;
    made.largest_message = shared_memory_alone ? layout_->slot_bytes() : largest_tcp_message;
    for (const auto& [name, ranks] : nodes_) {
      std::vector<CpuShare> shares;
      for (int rank : ranks) shares.push_back(cards[static_cast<std::size_t>(rank)].cpus);
      const double sharing = processes_for_each_cpu(shares);
      made.sharing = std::max(made.sharing, sharing);
      if (ranks == node_) made.oversubscribed = sharing > 1;
      const Card& first = cards[static_cast<std::size_t>(ranks.front())];
      if (ranks.size() > 1)
        made.largest_message = std::min(made.largest_message, layout(ranks, first.staging).slot_bytes());
    }
  }

  void set_routes(Connections& made) const {
    made.routes.rank = rank_;
    made.routes.streaming_from = streaming_from(made.sharing, static_cast<double>(node_.size()) / made.sharing);
    made.routes.takes_over = made.sharing <= 1;
    made.routes.transport.assign(members_.size(), TransportNumber::tcp);
    for (int rank : node_) made.routes.transport[static_cast<std::size_t>(rank)] = TransportNumber::shared_memory;
    made.routes.keeps_data[TransportNumber::tcp] = made.routes.needs_place[TransportNumber::tcp] = made.tcp != nullptr;
  }

  // With the node's other ranks.
  void share_memory(const std::vector<Card>& cards, const std::vector<Outcome>& outcomes, Connections& made) {
    std::vector<NodePeer> peers;
    bool single_copy = true;
    bool heaps = configuration().single_copy != "off";
    for (int rank : node_) {
      const auto pid = static_cast<pid_t>(cards[static_cast<std::size_t>(rank)].pid);
      // Found through another pid namespace's /proc, it may have another number here.
      const bool identified = readable_[peers.size()] || (mappable_[peers.size()] && proc_is_ours());
      peers.push_back({rank, pid, identified});
      single_copy = single_copy && outcomes[static_cast<std::size_t>(rank)].single_copy != 0;
      heaps = heaps && outcomes[static_cast<std::size_t>(rank)].heaps != 0;
    }
    constexpr std::size_t in_place_from = 16 << 10;
    const ReadInPlace in_place{heaps ? in_place_from : 0, single_copy ? in_place_from : 0};
    made.single_copy = single_copy;
    made.routes.needs_place[TransportNumber::shared_memory] = single_copy;
    made.shared_memory = std::make_unique<SharedMemoryTransport>(segment_, *layout_, std::move(peers), made.node_rank,
                                                                 static_cast<int>(members_.size()), in_place);
    log(LogLevel::info, rank_,
        "{} ranks on this node, {} CPUs for this one{}, single copy {}, memory of paceMemAlloc {}", node_.size(),
        allowed_cpus(), made.oversubscribed ? ", more ranks than CPUs" : "", single_copy ? "on" : "off",
        heaps ? "read in place" : "staged");
  }

  const std::vector<Member>& members_;
  int rank_;
  std::uint64_t id_;
  Membership& membership_;
  const std::string& secret_;
  Clock::time_point deadline_;
  const Status& refused_;
  Announced announced_;
  std::map<std::string, std::vector<int>> nodes_;
  std::vector<int> node_;       // this rank's
  std::vector<bool> readable_;  // by the node's rank: this process can read that one's memory
  std::vector<bool> mappable_;  // and map its allocations
  std::optional<NodeLayout> layout_;
  std::shared_ptr<Segment> segment_;
  std::optional<TcpListener> listener_;
  std::optional<TcpListener> meeting_;
  // Until all have tried.
  ReadProbe probe_;
  HeapProbe heap_probe_{probe_.place().value};
};

}  // namespace

Result<Connections> connect(const std::vector<Member>& members, int rank, std::uint64_t id, Membership& membership,
                            const std::string& secret, const Gather& gather, Clock::time_point deadline,
                            const Status& refused, const Announced& announced) {
  return Connecting(members, rank, id, membership, secret, deadline, refused, announced).make(gather);
}

Status sit_out(const Gather& gather) {
  auto cards = show_trouble(Card(), gather);
  if (!cards.ok()) return cards.status();
  auto outcomes = show_trouble(Outcome(), gather);
  return outcomes.ok() ? Status() : outcomes.status();
}

}  // namespace paceline
