// What an engine is tested with: a transport of whatever the test lays into it, and a membership that says what it is
// told to say.
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/session.h"
#include "engine/execution.h"
#include "engine/wait.h"
#include "transport/transport.h"

namespace paceline {

class FakeTransport final : public Transport {
 public:
  struct Sent {
    int channel;
    std::vector<int> to;
    Call call;
    const std::byte* data;
    std::size_t bytes;
    bool stays;
    bool to_all;
  };

  // ---- For the test ----

  // The next message from `from`.
  void deliver(int channel, int from, std::span<const std::byte> data, bool to_all = false) {
    arrivals_[{channel, from, to_all}].emplace_back(data.begin(), data.end());
  }
  [[nodiscard]] bool taken(int channel, int from, bool to_all = false) {
    return arrivals_[{channel, from, to_all}].empty();
  }

  std::vector<Sent> sends;
  std::size_t room = SIZE_MAX;                                  // sends that are accepted
  std::optional<std::array<std::uint64_t, max_channels>> left;  // what sent() says; else: everything
  bool puts_in_place = false;                                   // received data goes to the place given
  bool hands_over = false;                                      // own() says where messages lie
  bool broken = false;                                          // receive fails
  bool other_call = false;                                      // compare fails
  int held_by = -1;                                             // holder()
  std::size_t at_once = 0;                                      // short_message()
  bool leaves_at_once = true;                                   // immediate()
  std::vector<std::string> log;                                 // "progress", "announce", "sleep"
  std::vector<std::pair<int, Call>> compared;
  std::function<void(const std::string&)> on;  // called with each entry of the log

  // ---- The interface ----

  [[nodiscard]] std::string_view name() const override { return "fake"; }

  Attempt send(int channel, std::span<const int> to, const Call& call, std::span<const std::byte> data, bool stays,
               bool to_all) override {
    if (sends.size() == room) return Attempt::later;
    sends.push_back({channel, {to.begin(), to.end()}, call, data.data(), data.size(), stays, to_all});
    ++accepted_[static_cast<std::size_t>(channel)];
    return Attempt::done;
  }

  [[nodiscard]] std::uint64_t sent(int channel) override {
    const auto i = static_cast<std::size_t>(channel);
    return left ? (*left)[i] : accepted_[i];
  }

  Attempt receive(int channel, int from, const Call& call, std::size_t bytes, std::byte* place, const std::byte** data,
                  bool to_all) override {
    received_call = call;
    if (broken) {
      failure_ = Status(Code::remote, "the line is dead");
      return Attempt::failed;
    }
    auto& waiting = arrivals_[{channel, from, to_all}];
    if (waiting.empty()) return Attempt::later;
    if (waiting.front().size() != bytes) {
      failure_ = Status(Code::internal, "another length");
      return Attempt::failed;
    }
    if (puts_in_place) std::memcpy(place, waiting.front().data(), bytes);
    *data = puts_in_place ? place : waiting.front().data();
    return Attempt::done;
  }

  Attempt release(int channel, int from, bool to_all) override {
    arrivals_[{channel, from, to_all}].pop_front();
    return Attempt::done;
  }

  std::byte* own(int channel, int from, bool to_all) override {
    return hands_over ? arrivals_[{channel, from, to_all}].front().data() : nullptr;
  }

  Attempt keep(int channel, int from, bool to_all, std::uint32_t* kept) override {
    *kept = static_cast<std::uint32_t>(kept_.size());
    kept_.push_back(std::move(arrivals_[{channel, from, to_all}].front()));
    return release(channel, from, to_all);
  }

  Attempt pass_on(int channel, int to, const Call& call, std::uint32_t kept, std::size_t bytes, bool to_all) override {
    return send(channel, {&to, 1}, call, {kept_[kept].data(), bytes}, true, to_all);
  }

  Attempt progress() override {
    note("progress");
    return Attempt::done;
  }
  void announce_sleep() override { note("announce"); }
  void sleep(double microseconds) override {
    slept_us = microseconds;
    std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(microseconds));
    note("sleep");
  }
  [[nodiscard]] bool immediate() const override { return leaves_at_once; }
  [[nodiscard]] std::size_t short_message() const override { return at_once; }

  [[nodiscard]] int holder(int, std::span<const int>, const Call&, bool) override { return held_by; }

  Attempt compare(int from, const Call& call, bool) override {
    compared.emplace_back(from, call);
    if (!other_call) return Attempt::done;
    failure_ = Status(Code::mismatch, "they are elsewhere");
    return Attempt::failed;
  }
  [[nodiscard]] Status untaken() override { return {}; }
  [[nodiscard]] Status failure() const override { return failure_; }

  double slept_us = 0;
  Call received_call;

 private:
  void note(const std::string& what) {
    log.push_back(what);
    if (on) on(what);
  }

  std::map<std::tuple<int, int, bool>, std::deque<std::vector<std::byte>>> arrivals_;
  std::vector<std::vector<std::byte>> kept_;
  std::array<std::uint64_t, max_channels> accepted_{};
  Status failure_;
};

class FakeMembership final : public Membership {
 public:
  // ---- For the test ----

  void end(Status reason) {
    reason_ = std::move(reason);
    failed_.store(true);
  }

  std::map<int, std::uint32_t> left;  // rank -> its last collective
  std::vector<Status> reports;
  struct TimedOut {
    int rank;
    Call call;
    double seconds;
  };
  std::vector<TimedOut> timeouts;
  std::function<void(int rank)> tell_of_leavers;

  // ---- The interface ----

  [[nodiscard]] Status failure() const override { return reason_; }
  void when_failed(const void*, std::function<void(const Status& reason)>) override {}
  void when_left(std::function<void(int rank)> call) override { tell_of_leavers = std::move(call); }
  void look_by(std::function<Status()>) override {}
  Status report(Status reason) override {
    reports.push_back(reason);
    return Status(reason.code(), "reported: " + reason.message());
  }
  Status timed_out(int waiting_for, const Call& call, double seconds) override {
    timeouts.push_back({waiting_for, call, seconds});
    return Status(Code::timeout, "too late");
  }
  [[nodiscard]] bool has_left(int rank, std::uint32_t* sequence) const override {
    const auto found = left.find(rank);
    if (found == left.end()) return false;
    *sequence = found->second;
    return true;
  }
  bool leave() override { return true; }

 private:
  Status reason_;
};

// A rank among `ranks` that reaches all others by one transport.
struct FakeRank {
  explicit FakeRank(int rank = 0, int ranks = 3) {
    wiring.rank = rank;
    wiring.ranks = ranks;
    wiring.transports = {&transport, nullptr};
    wiring.routes.rank = rank;
    wiring.routes.transport.assign(static_cast<std::size_t>(ranks), 0);
    wiring.membership = &membership;
    wiring.timeout = 20;
  }
  FakeRank(const FakeRank&) = delete;
  FakeRank& operator=(const FakeRank&) = delete;

  FakeTransport transport;
  FakeMembership membership;
  Wiring wiring;
};

// Plans of a few steps, written by hand. Elements are float32.
class PlanWriter {
 public:
  PlanWriter() {
    plan.lanes.resize(1);
    plan.element_bytes = 4;
    plan.fold = fold_function(DataType::float32, Operation::sum);
  }

  // Elements of the input (of `send` and the own operand) and of the output.
  PlanStep& send(std::vector<int> to, std::size_t from, std::size_t count, std::size_t channel = 0) {
    PlanStep& step = add(Action::send, std::move(to), count, channel);
    step.source_buffer = Buffer::input;
    step.source = 4 * from;
    return step;
  }
  PlanStep& recv(int from, std::size_t to, std::size_t count, std::size_t channel = 0) {
    PlanStep& step = add(Action::recv, {from}, count, channel);
    step.target = 4 * to;
    return step;
  }
  PlanStep& fold(std::vector<int> from, int own, std::size_t to, std::size_t count, std::size_t channel = 0) {
    PlanStep& step = add(Action::recv_reduce, std::move(from), count, channel);
    step.own = static_cast<std::int16_t>(own);
    step.target = 4 * to;
    return step;
  }
  PlanStep& copy(std::size_t from, std::size_t to, std::size_t count, std::size_t channel = 0) {
    PlanStep& step = add(Action::copy, {}, count, channel);
    step.source_buffer = Buffer::input;
    step.source = 4 * from;
    step.target = 4 * to;
    return step;
  }

  Plan plan;

 private:
  PlanStep& add(Action action, std::vector<int> peers, std::size_t count, std::size_t channel) {
    if (plan.lanes.size() <= channel) plan.lanes.resize(channel + 1);
    PlanStep step;
    step.action = action;
    step.channel = static_cast<std::uint8_t>(channel);
    step.first_peer = static_cast<std::uint32_t>(plan.peers.size());
    step.peer_count = static_cast<std::uint32_t>(peers.size());
    step.target_buffer = Buffer::output;
    step.bytes = 4 * count;
    plan.peers.insert(plan.peers.end(), peers.begin(), peers.end());
    return plan.lanes[channel].emplace_back(step);
  }
};

inline std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

inline Memory memory_of(const std::vector<float>& input, std::vector<float>& output) {
  Memory memory;
  memory.input = bytes_of(input).data();
  memory.output = std::as_writable_bytes(std::span(output)).data();
  return memory;
}

inline Call all_reduce(std::uint32_t sequence) {
  return make_call(Collective::all_reduce, DataType::float32, Operation::sum, 0, 4, sequence);
}

// A rank that waits in `call` for a message of rank 1.
struct Waiting : FakeRank {
  explicit Waiting(const Call& call = all_reduce(1)) : execution(wiring) {
    writer.recv(1, 0, 1);
    execution.add(writer.plan, call, memory_of(input, output));
  }

  Status run() { return paceline::run(execution); }

  PlanWriter writer;
  std::vector<float> input;
  std::vector<float> output{9};
  Execution execution;
};

}  // namespace paceline
