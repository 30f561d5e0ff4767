#include "bootstrap/monitor.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "base/signals_blocked.h"
#include "bootstrap/member.h"
#include "bootstrap/socket.h"

namespace paceline {
namespace {

constexpr auto stop_time = std::chrono::milliseconds(200);
constexpr auto flush_time = std::chrono::milliseconds(500);
constexpr auto look_time = std::chrono::milliseconds(500);

// Nothing more is sent on them.
void close_all(std::vector<ControlConnection>& connections, Clock::time_point deadline) {
  std::vector<ControlConnection*> open;
  for (ControlConnection& connection : connections) {
    connection.finish();
    open.push_back(&connection);
  }
  drain(std::move(open), deadline);
}

// This rank ends before its first exchange, which the others are in or come to: they would take it for dead.
Status tell_of_no_start(int rank, std::vector<ControlConnection>& connections, const Status& why) {
  Status told = own_error(rank, why);
  const Frame frame = make_frame(Shortfall{0, told.detail()});
  for (ControlConnection& connection : connections) {
    connection.queue(frame);
    connection.flush();
  }
  close_all(connections, Clock::now() + stop_time);
  return told;
}

}  // namespace

Monitor::Monitor(Assembly assembly, std::function<void(const ControlMessage&)> deliver, std::function<void()> gave_up,
                 std::function<void()> look, PrivateDescriptor wake)
    : connections_(std::move(assembly.connections)),
      early_(std::move(assembly.early)),
      deliver_(std::move(deliver)),
      gave_up_(std::move(gave_up)),
      look_(std::move(look)),
      next_look_(Clock::now() + look_time),
      wake_(std::move(wake)) {}

Result<std::unique_ptr<Monitor>> Monitor::start(int rank, Assembly assembly,
                                                std::function<void(const ControlMessage&)> deliver,
                                                std::function<void()> gave_up, std::function<void()> look) {
  PrivateDescriptor wake(FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)));
  if (!wake.valid())
    return tell_of_no_start(rank, assembly.connections, descriptor_error("cannot make an event descriptor", errno));
  const std::vector<Member> members = assembly.members;
  std::unique_ptr<Monitor> monitor(
      new Monitor(std::move(assembly), std::move(deliver), std::move(gave_up), std::move(look), std::move(wake)));
  if (rank == 0) {
    Monitor* const self = monitor.get();
    self->coordinator_.emplace(members, [self](const Coordinator::Ranks& ranks, const ControlMessage& message) {
      Frame frame;
      bool to_self = false;
      for (const std::uint32_t to : ranks) {
        to_self = to_self || to == 0;
        if (to == 0) continue;
        if (!frame) frame = make_frame(message);
        self->connections_[to].queue(frame);
        self->connections_[to].flush();
      }
      // Last: a process may end because of it.
      if (to_self) self->deliver_(message);
    });
  }
  try {
    const SignalsBlocked blocked;
    monitor->thread_ = std::thread([self = monitor.get()] { self->run(); });
  } catch (const std::system_error& error) {
    return tell_of_no_start(rank, monitor->connections_,
                            Status::system("cannot start the monitor's thread", error.code().value()));
  }
  ::pthread_setname_np(monitor->thread_.native_handle(), "pace-monitor");
  return monitor;
}

Monitor::~Monitor() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_by_ = Clock::now() + stop_time;
  }
  wake();
  thread_.join();
}

void Monitor::post(ControlMessage message) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(message));
    ++posts_;
  }
  wake();
}

void Monitor::flush() {
  std::unique_lock lock(mutex_);
  sent_more_.wait_until(lock, Clock::now() + flush_time, [this, all = posts_] { return sent_ >= all; });
}

void Monitor::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Monitor::run() {
  try {
    serve();
  } catch (const std::bad_alloc&) {
    for (ControlConnection& connection : connections_) connection.close();
    gave_up_();
  }
}

void Monitor::serve() {
  for (const auto& [from, message] : std::exchange(early_, {})) take(from, message);
  for (;;) {
    send_posted();
    if (finished()) break;
    sleep();
    if (coordinator_) coordinator_->tick(Clock::now());
    if (Clock::now() < next_look_) continue;
    look_();
    next_look_ = Clock::now() + look_time;
  }
  close_all(connections_, *stop_by_);
}

void Monitor::send_posted() {
  std::vector<ControlMessage> posted;
  std::uint64_t posts = 0;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
    posts = posts_;
  }
  for (const ControlMessage& message : posted) {
    if (coordinator_)
      coordinator_->receive(0, message, Clock::now());
    else
      connections_[0].queue(make_frame(message));
  }
  bool flushed = true;
  for (ControlConnection& connection : connections_) {
    connection.flush();
    flushed = flushed && connection.flushed();
  }
  if (!flushed) return;
  const std::lock_guard lock(mutex_);
  sent_ = posts;
  sent_more_.notify_all();
}

bool Monitor::finished() {
  const std::lock_guard lock(mutex_);
  if (!stop_by_) return false;
  const bool flushed = posted_.empty() && std::all_of(connections_.begin(), connections_.end(),
                                                      [](const ControlConnection& c) { return c.flushed(); });
  return flushed || Clock::now() >= *stop_by_;
}

void Monitor::sleep() {
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
  std::vector<std::size_t> ranks = {0};
  for (std::size_t rank = 0; rank < connections_.size(); ++rank)
    if (connections_[rank].open()) {
      entries.push_back({connections_[rank].fd(), connections_[rank].events(), 0});
      ranks.push_back(rank);
    }
  Clock::time_point until = next_look_;
  if (coordinator_) until = std::min(until, coordinator_->next_tick().value_or(until));
  {
    const std::lock_guard lock(mutex_);
    until = std::min(until, stop_by_.value_or(until));
  }
  if (::poll(entries.data(), entries.size(), milliseconds_until(until)) <= 0) return;
  if (entries[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = ::read(wake_.get(), &count, sizeof count);
  }
  for (std::size_t i = 1; i < entries.size(); ++i)
    if ((entries[i].revents & ~POLLOUT) != 0) read(ranks[i]);
}

void Monitor::read(std::size_t rank) {
  std::vector<ControlMessage> messages;
  const Status status = connections_[rank].receive(messages);
  for (const ControlMessage& message : messages) take(rank, message);
  if (!status.ok()) ended(rank, status);
}

void Monitor::take(std::size_t from, const ControlMessage& message) {
  if (coordinator_) {
    coordinator_->receive(static_cast<std::uint32_t>(from), message, Clock::now());
    return;
  }
  const auto* farewell = std::get_if<Farewell>(&message);
  farewell_ = farewell_ || (farewell != nullptr && farewell->rank == 0);
  deliver_(message);
}

void Monitor::ended(std::size_t rank, const Status& why) {
  connections_[rank].close();
  // Out of reach is not dead: its own host may see it run.
  const bool unreachable = why.detail().system_errno != 0;
  const std::string how = (unreachable ? "is lost: " : "died: ") + why.message();
  if (coordinator_)
    coordinator_->lost(static_cast<std::uint32_t>(rank), how);
  else if (!farewell_)
    deliver_(Death{0, how});
}

}  // namespace paceline
