#include "comm/trace.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <vector>

#include "base/file_descriptor.h"
#include "schedule/schedule.h"

namespace paceline {
namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::system_clock::now().time_since_epoch()).count();
}

struct Event {
  std::string_view category;
  const char* name;
  int channel;
  int peer;
  std::size_t bytes;
  Call call;
  double begin;
  double end;
  bool reduces = false;  // a message that was folded
};

}  // namespace

// All events, in the order in which they ended.
class TraceEvents {
 public:
  void note(const Event& event) {
    last_end_[static_cast<std::size_t>(event.channel)] = event.end;
    all_.push_back(event);
  }
  // Of the channel's last event, over whatever transport.
  [[nodiscard]] double last_end(int channel) const { return last_end_[static_cast<std::size_t>(channel)]; }
  [[nodiscard]] const std::vector<Event>& all() const { return all_; }

 private:
  std::array<double, max_channels> last_end_{};
  std::vector<Event> all_;
};

// Notes events of one transport. A wait is noted from the first look that found nothing, or the channel's last event if
// that is later, to the look that found the message; a use, from then to its release.
class TracingTransport final : public Transport {
 public:
  TracingTransport(Transport& traced, int ranks, TraceEvents& events)
      : traced_(traced),
        ranks_(static_cast<std::size_t>(ranks)),
        events_(events),
        receiving_(static_cast<std::size_t>(max_channels) * ranks_),
        sending_(max_channels, 0) {}

  [[nodiscard]] std::string_view name() const override { return traced_.name(); }

  Attempt send(int channel, std::span<const int> to, const Call& call, std::span<const std::byte> data, bool stays,
               bool to_all) override {
    const double begin = now_us();
    return noted_send(channel, to.front(), call, data.size(), begin,
                      traced_.send(channel, to, call, data, stays, to_all));
  }

  [[nodiscard]] std::uint64_t sent(int channel) override { return traced_.sent(channel); }

  Attempt receive(int channel, int from, const Call& call, std::size_t bytes, std::byte* place, const std::byte** data,
                  bool to_all) override {
    Receiving& state = receiving_[index(channel, from)];
    const double begin = now_us();
    const Attempt attempt = traced_.receive(channel, from, call, bytes, place, data, to_all);
    if (attempt == Attempt::later && state.since == 0) state.since = begin;
    if (attempt != Attempt::done) return attempt;
    note_wait("wait", channel, from, bytes, call, state.since, begin);
    state = {.arrived = begin, .bytes = bytes, .call = call};
    return attempt;
  }

  void expect(int channel, int from, bool to_all) override { traced_.expect(channel, from, to_all); }

  Attempt release(int channel, int from, bool to_all) override {
    return noted_use(channel, from, traced_.release(channel, from, to_all));
  }

  std::byte* own(int channel, int from, bool to_all) override { return traced_.own(channel, from, to_all); }

  Attempt keep(int channel, int from, bool to_all, std::uint32_t* kept) override {
    return noted_use(channel, from, traced_.keep(channel, from, to_all, kept));
  }

  Attempt pass_on(int channel, int to, const Call& call, std::uint32_t kept, std::size_t bytes, bool to_all) override {
    const double begin = now_us();
    return noted_send(channel, to, call, bytes, begin, traced_.pass_on(channel, to, call, kept, bytes, to_all));
  }

  [[nodiscard]] int holder(int channel, std::span<const int> to, const Call& call, bool to_all) override {
    return traced_.holder(channel, to, call, to_all);
  }

  Attempt progress() override { return traced_.progress(); }
  void announce_sleep() override { traced_.announce_sleep(); }
  void sleep(double microseconds) override { traced_.sleep(microseconds); }
  void announce(const Call& call) override { traced_.announce(call); }
  [[nodiscard]] bool immediate() const override { return traced_.immediate(); }
  Attempt compare(int from, const Call& call, bool owed) override { return traced_.compare(from, call, owed); }
  [[nodiscard]] Status untaken() override { return traced_.untaken(); }
  [[nodiscard]] bool has_left(int rank, std::uint32_t* sequence) const override {
    return traced_.has_left(rank, sequence);
  }
  [[nodiscard]] Status failure() const override { return traced_.failure(); }

  // The message that has come is folded next.
  void folds(int channel, int from) { receiving_[index(channel, from)].folds = true; }

 private:
  struct Receiving {
    double since = 0;
    double arrived = 0;
    std::size_t bytes = 0;
    Call call;
    bool folds = false;
  };
  Attempt noted_send(int channel, int to, const Call& call, std::size_t bytes, double begin, Attempt attempt) {
    double& since = sending_[static_cast<std::size_t>(channel)];
    if (attempt == Attempt::later && since == 0) since = begin;
    if (attempt != Attempt::done) return attempt;
    note_wait("wait for room", channel, to, 0, call, since, begin);
    note("send", channel, to, bytes, call, begin);
    since = 0;
    return attempt;
  }
  Attempt noted_use(int channel, int from, Attempt attempt) {
    const Receiving& state = receiving_[index(channel, from)];
    note("recv", channel, from, state.bytes, state.call, state.arrived, state.folds);
    return attempt;
  }
  void note(const char* name, int channel, int peer, std::size_t bytes, const Call& call, double begin,
            bool reduces = false) {
    events_.note({traced_.name(), name, channel, peer, bytes, call, begin, now_us(), reduces});
  }
  void note_wait(const char* name, int channel, int peer, std::size_t bytes, const Call& call, double since,
                 double end) {
    if (since == 0) return;
    const double begin = std::max(since, events_.last_end(channel));
    events_.note({traced_.name(), name, channel, peer, bytes, call, begin, std::max(begin, end)});
  }
  [[nodiscard]] std::size_t index(int channel, int from) const {
    return static_cast<std::size_t>(channel) * ranks_ + static_cast<std::size_t>(from);
  }

  Transport& traced_;
  std::size_t ranks_;
  TraceEvents& events_;
  std::vector<Receiving> receiving_;  // by channel and rank
  std::vector<double> sending_;       // by channel: since when a send waits for room; 0: it does not
};

// Copies, and which messages are folded.
class TracingWatch final : public StepWatch {
 public:
  TracingWatch(const Wiring& wiring, std::span<const std::unique_ptr<TracingTransport>> tracers, TraceEvents& events)
      : wiring_(wiring), tracers_(tracers), events_(events) {}

  void copy_begins() override { begin_ = now_us(); }
  void copy_ends(int channel, std::size_t bytes, const Call& call) override {
    events_.note({"memory", "copy", channel, wiring_.rank, bytes, call, begin_, now_us()});
  }
  void folds(int channel, std::span<const int> peers) override {
    for (const int peer : peers)
      tracers_[wiring_.routes.transport[static_cast<std::size_t>(peer)]]->folds(channel, peer);
  }

 private:
  const Wiring& wiring_;
  std::span<const std::unique_ptr<TracingTransport>> tracers_;
  TraceEvents& events_;
  double begin_ = 0;
};

Trace::Trace(Wiring& wiring) : wiring_(wiring), traced_(wiring.transports), events_(std::make_unique<TraceEvents>()) {
  for (std::size_t t = 0; t < traced_.size(); ++t) {
    if (traced_[t] == nullptr) continue;
    tracers_[t] = std::make_unique<TracingTransport>(*traced_[t], wiring.ranks, *events_);
    wiring.transports[t] = tracers_[t].get();
  }
  watch_ = std::make_unique<TracingWatch>(wiring, tracers_, *events_);
  wiring.watch = watch_.get();
}

Trace::~Trace() {
  wiring_.transports = traced_;
  wiring_.watch = nullptr;
}

Status Trace::write(const std::string& path) const {
  const auto failed = [&] { return Status::system("writing the trace to " + path, errno); };
  FileDescriptor descriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!descriptor.valid()) return failed();
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(::fdopen(descriptor.get(), "w"), std::fclose);
  if (file == nullptr) return failed();
  (void)descriptor.release();  // the file's
  const auto written = [&](const std::string& text) {
    return std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  };
  const char* separator = "[";
  for (const Event& event : events_->all()) {
    const std::string text = fmt::format(
        "{}\n{{\"name\":\"{}\",\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},"
        "\"dur\":{:.3f},\"args\":{{\"peer\":{},\"bytes\":{},\"call\":\"{}\"{}}}}}",
        separator, event.name, event.category, wiring_.rank, event.channel, event.begin, event.end - event.begin,
        event.peer, event.bytes, describe(event.call), event.reduces ? ",\"reduces\":true" : "");
    if (!written(text)) return failed();
    separator = ",";
  }
  const std::string end = fmt::format("{}\n]\n", *separator == '[' ? "[" : "");
  if (!written(end) || std::fclose(file.release()) != 0) return failed();
  return {};
}

}  // namespace paceline
