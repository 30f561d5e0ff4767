// The communicator: the ranks that take part, their connections, and the order of their calls.
//
// A call gets its sequence number, its plan (cached after the first call of its shape), runs on the host engine, and
// comes back as one Status. After a failure the communicator has ended: every later call returns the reason.
//
// communicator.cc makes and splits it, communicator_shrink.cc goes on without some ranks, communicator_links.cc
// measures links, communicator_topology.cc knows what is between the ranks, communicator_plans.cc chooses plans,
// communicator_calls.cc makes the calls, and communicator_device.cc those on GPU memory.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/session.h"
#include "comm/arena.h"
#include "comm/connect.h"
#include "comm/device_calls.h"
#include "comm/plan_cache.h"
#include "engine/execution.h"
#include "engine/request.h"
#include "topology/paths.h"
#include "tuning/decision.h"
#include "tuning/node_links.h"
#include "tuning/tuned.h"

namespace paceline {

class Trace;

struct CommunicatorOptions {
  double timeout = 0;       // s; 0: PACELINE_TIMEOUT
  double join_timeout = 0;  // s, for meeting and connecting each; 0: PACELINE_JOIN_TIMEOUT
  std::string algorithm;    // as known_variant() takes it; empty: PACELINE_ALGORITHM, or chosen
  std::size_t chunk = 0;    // bytes; 0: PACELINE_CHUNK, or chosen
};

struct PlanInfo {
  std::string algorithm;
  std::string transport;
  std::size_t chunk_bytes = 0;
  int channels = 1;
  int radix = 0;  // 0: the algorithm has none
  double predicted_us = 0;
  Protocol protocol = Protocol::staged;
};

class Communicator {
 public:
  // The first communicator of a session, of all its ranks.
  static Result<std::unique_ptr<Communicator>> create(std::shared_ptr<Session> session,
                                                      const CommunicatorOptions& options);
  ~Communicator();

  [[nodiscard]] int rank() const { return wiring_.rank; }
  [[nodiscard]] int size() const { return wiring_.ranks; }
  [[nodiscard]] int node_rank() const { return connections_.node_rank; }
  [[nodiscard]] int node_size() const { return connections_.node_size; }
  [[nodiscard]] bool links_measured() const { return links_ != nullptr; }
  // Whether there is an engine for the ranks' GPUs, as far as is known now.
  [[nodiscard]] bool gpus_direct() const { return device_calls_ != nullptr && device_calls_->engine() != nullptr; }
  // Whether that is known.
  [[nodiscard]] bool knows_gpus() const { return device_calls_ != nullptr; }
  // Unmaps GPU memory that other ranks have freed. Waits for the kernels of this GPU, if there is something.
  void let_go() {
    if (gpus_direct()) device_calls_->engine()->let_go();
  }
  // Whether a call on GPU memory would be refused for where its buffers are.
  [[nodiscard]] Status check_memory(const Request& request, void* stream) const {
    return gpus_direct() ? device_calls_->check_memory(request, stream) : Status();
  }
  // Calls on GPU memory in which the ranks worked in each other's buffers, ever.
  Result<std::uint64_t> direct_calls();

  // A call made ready: where its plan runs. Its caller may keep it for the next call that is the same in every field.
  struct KnownPlan {
    const Plan* plan = nullptr;  // none: not ready, or not for another call
    Memory memory;
    const std::byte* arena = nullptr;  // that the memory's scratch is in
    std::uint64_t epoch = 0;           // of the plans
  };
  // One call, from its beginning to its end.
  Status run(const Request& request, KnownPlan& known);
  Status run(const Request& request) {
    KnownPlan unknown;
    return run(request, unknown);
  }
  // Several, as paceGroupEnd says: calls[i] is for communicators[i].
  static Status run_group(std::span<Communicator* const> communicators, std::span<const Request> calls);
  // A group has failed in which others still wait for a call of this communicator. here: it was this one that failed.
  void break_off_group(const Status& cause, bool here);

  // Make it known whether there is one for the ranks' GPUs: where it is not yet, all take part, as in a collective.
  Status meet_on_gpus();
  // One call on GPU memory: begun on `stream` (a cudaStream_t) when it returns. The first needs all ranks, as a
  // collective does.
  Status run_on_device(const Request& request, void* stream);
  // Sends and receives on GPU memory that go on side by side.
  Status run_messages_on_device(std::span<const Request> messages, void* stream);
  // What comes on the stream `later` from now on follows what has come on `earlier`.
  Status order_streams(void* earlier, void* later);

  // nullptr for a negative color.
  Result<std::unique_ptr<Communicator>> split(int color, int key, const CommunicatorOptions& options);
  // Of the ranks that are not excluded, which call it alike. Nothing goes through this communicator: it may have ended.
  // Waits for them as long as a call does, or PACELINE_JOIN_TIMEOUT where that is longer, but where the options say it.
  Result<std::unique_ptr<Communicator>> shrink(std::span<const int> excluded, const CommunicatorOptions& options);
  // When this rank's calls on GPU memory have ended. An error if another rank has made a call that this one has not.
  Status leave();
  // From any thread; also the split or shrink that is under way.
  void abort();

  // The reason why the communicator has ended, or ok. From any thread.
  [[nodiscard]] Status failure() const;

  // As known_variant() takes it; empty: the choice by cost.
  Status set_algorithm(const std::string& name);
  // Makes no plan: of a count that no memory holds it would be long.
  Result<PlanInfo> explain(const Request& request) const;
  // Choose by a profile, the same on every rank; empty: by the model alone.
  Status set_tuning(std::string_view profile);
  // As paceCommGpuTable has it.
  [[nodiscard]] Result<std::string> gpu_table() const;
  // "shm", "tcp", "shm+tcp" or "local": what its ranks use, all together.
  [[nodiscard]] std::string_view transport() const { return connections_.transport; }
  // The same as profiles have it: TCP inside one machine is "loopback", which says nothing about networks.
  [[nodiscard]] std::string_view tuned_transport() const;
  [[nodiscard]] CostModel cost_model(DataType type) const;
  // Whether calls without a profile are chosen by simulation on the links measured.
  [[nodiscard]] bool simulates() const { return simulated_ != nullptr; }

  Status start_trace();
  Status stop_trace(const std::string& path);

  // Claim the communicator for a thread's call. False: another thread is inside.
  bool enter() {
    Use use = Use::none;
    // acquire: the call after the claim
    if (use_.compare_exchange_strong(use, Use::call, std::memory_order_acquire)) [[likely]]
      return true;
    return use == Use::look && enter_after_look();
  }
  void exit() { use_.store(Use::none, std::memory_order_release); }  // orders: the call before the next claim

 private:
  // id: the same on all of its ranks and used once a session.
  Communicator(std::shared_ptr<Session> session, std::uint64_t id, std::vector<int> session_ranks, int rank,
               const CommunicatorOptions& options);
  // How the forced algorithm is to run, and how long chunks may be whatever runs.
  [[nodiscard]] Variant asked() const {
    Variant asked = forced_.variant;
    if (asked.chunk == 0) asked.chunk = options_.chunk;
    return asked;
  }
  // One communicator's part of a group: first its messages, all together, then its collectives, one a turn.
  struct Part {
    std::vector<const Request*> messages;
    std::vector<const Request*> collectives;
    std::size_t ended = 0;  // turns; that of the messages is the first
    bool begun = false;     // the next one is under way

    [[nodiscard]] bool has(std::size_t turn) const {
      return turn == 0 ? !messages.empty() : turn <= collectives.size();
    }
    // Whether other ranks still wait for something of it.
    [[nodiscard]] bool is_owed(int rank) const;
  };
  using Parts = std::map<Communicator*, Part>;

  // A session's first, not yet connected.
  static std::unique_ptr<Communicator> first_of(std::shared_ptr<Session> session, const CommunicatorOptions& options);
  Status connect_first();
  Status connect(const Gather& gather, const Status& refused = {}, const Announced& announced = {});
  // Another communicator is made of this one as long as this lives: an abort of this one is one of that, too.
  class Making {
   public:
    // aborts: of `from`, when it began.
    Making(Communicator& from, Communicator& made, std::uint32_t aborts);
    ~Making();
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;

   private:
    Communicator& from_;
  };
  void give_up();
  // It is made: from now on, between its calls, it is looked whether other ranks have called something else. Who only
  // gives in a call does not hear of it there.
  void look_behind_calls();
  Status look();
  bool enter_after_look();
  Result<std::unique_ptr<Communicator>> shrink_to(const std::vector<int>& staying, const CommunicatorOptions& options);
  // A session of these of its ranks. aborts: so far.
  Result<std::shared_ptr<Session>> meet_again(const std::vector<int>& staying, double timeout, std::uint32_t aborts);
  // What rank 0 has read goes to all.
  Status share(std::string tuning, std::string topology);
  // Whether each rank has a GPU in the topology that is announced.
  [[nodiscard]] Status check_places() const;
  Status use_topology(std::string_view text);
  [[nodiscard]] std::string reason_against(const Topology& topology, std::span<const int> gpus) const;
  // Rank r is on GPU gpus[r].
  void follow(std::shared_ptr<const Topology> topology, std::vector<int> gpus);
  // Of the first communicator: between the first ranks of the machines.
  Status measure_links();
  // Where each rank has a machine of its own, and the topology is known, or links are narrower than CPUs.
  Status simulate_on_links();
  [[nodiscard]] std::optional<Topology> topology_between_nodes() const;
  void use_profile(std::shared_ptr<const Profile> profile);

  Status prepare(const Request& request, KnownPlan& ready);
  Result<const Plan*> plan_for(const Request& request, bool in_place);
  // Of a collective: what a plan is made of, and an explanation.
  Result<Decision> decide(const Request& request, const Problem& problem) const;
  Result<Plan> make_plan(const Request& request, bool in_place);
  [[nodiscard]] Plan make_message_plan(const Request& request) const;
  Status begin(const Request& request, KnownPlan& known);
  [[nodiscard]] std::span<const std::byte> input_of(const Request& request, const KnownPlan& known) const;
  void announce(const Call& call);
  void finish(const Request& request) const;
  Status deliver_to_self(std::span<const Request* const> messages) const;
  Status begin_messages(std::span<const Request* const> messages);
  Status begin_message(const Request& message, KnownPlan& known);
  void end(const Status& status);
  void break_off(std::string_view how);
  // Why the communicator has ended, as far as this rank knows without looking at others' memory.
  [[nodiscard]] Status known_failure() const;
  // Gives the error back; if it is this rank's alone, the others learn that the call does not come.
  Status not_begun(Collective which, const Status& why);
  Status begin_turn(Part& part);
  void end_turn(Part& part);
  static Parts parts_of(std::span<Communicator* const> communicators, std::span<const Request> calls);
  static const Communicator* waited_in_vain(const Parts& parts);
  static void break_off_undone(const Parts& parts, const Communicator* not_begun, const Communicator* in_vain,
                               const Status& cause);
  // The number here of the rank, another one, for which the other communicator's call timed out; -1: it is none here.
  [[nodiscard]] int late_in(const Communicator& other) const;
  // As break_off_group: for another communicator's call in it that rank was late.
  void break_off_group_for(int late, const Status& cause);
  Result<std::vector<Bytes>> gather_bytes(std::span<const std::byte> mine, Serves what = Serves::user);
  // `by`: what makes them meet.
  Status connect_devices(Serves by);
  // Where every rank uses a GPU already; else the first call with GPU memory does it.
  Status connect_devices_in_use() { return connections_.gpus_in_use ? connect_devices(Serves::user) : Status(); }
  Status run_through_host(std::span<const Request> calls, void* stream);

  std::shared_ptr<Session> session_;
  std::vector<int> session_ranks_;
  CommunicatorOptions options_;
  NamedVariant forced_;  // what options_.algorithm says
  Connections connections_;
  std::unique_ptr<Membership> membership_;
  Wiring wiring_;
  std::unique_ptr<Execution> execution_;
  PlanCache plans_;
  std::shared_ptr<const Topology> topology_;  // PACELINE_TOPOLOGY's; nullptr: none is known
  std::vector<int> gpus_;                     // its ranks' there
  std::shared_ptr<Paths> paths_;              // what is found for them
  std::shared_ptr<const NodeLinks> links_;    // of the session's ranks; nullptr: all on one machine
  std::shared_ptr<const Tuned> simulated_;    // on these links; nullptr: it was not worth it
  std::shared_ptr<const Profile> profile_;    // nullptr: none
  std::shared_ptr<const Tuned> tuned_;        // what it has for this communicator, or simulated_
  Arena scratch_;                             // schedules' scratch, and places for messages
  Arena operands_;                            // inputs that are scaled or moved before the call
  Call last_;  // of the collectives, by now or under way; its sequence is 0 before the first
  std::uint32_t children_ = 0;
  // The sends to a peer, or the receives from it: numbered, in a group one after another.
  struct Messages {
    std::uint32_t count = 0;
    std::uint32_t group = 0;  // in which `lane` has the last of them
    int lane = -1;
  };
  std::vector<Messages> messages_to_;
  std::vector<Messages> messages_from_;
  std::uint32_t groups_ = 0;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<DeviceCalls> device_calls_;          // nullptr: none so far
  std::atomic<const DeviceCalls*> watched_ = nullptr;  // the same, connected: for other threads that ask for errors
  const std::uint64_t id_;
  enum class Use : std::uint8_t { none, call, look };
  std::atomic<Use> use_{Use::none};  // guards what is used in calls
  std::atomic<std::uint32_t> aborts_{0};
  std::mutex making_mutex_;
  Communicator* made_now_ = nullptr;  // guarded by it
};

}  // namespace paceline
