#include "bootstrap/signpost.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/configuration.h"
#include "base/fork_hold.h"
#include "base/signals_blocked.h"
#include "bootstrap/handshake.h"
#include "bootstrap/interface.h"
#include "bootstrap/member.h"
#include "bootstrap/socket.h"
#include "bootstrap/strangers.h"

namespace paceline {
namespace {

constexpr std::size_t most_strangers = 256;
constexpr auto parting_time = std::chrono::milliseconds(300);
constexpr auto crowded_pause = std::chrono::milliseconds(100);
constexpr auto bad_news_time = std::chrono::seconds(60);  // for ranks still to come
constexpr auto dismissing_time = std::chrono::seconds(1);
// Longest that a rank which has been shown the way takes to come to rank 0.
constexpr auto way_time = std::chrono::seconds(5);

// Guards every signpost's stage.
std::mutex mutex;
const HeldWhileForking<mutex> held_while_forking;

bool is_readable(int fd, Clock::duration longest) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, milliseconds_until(Clock::now() + longest)) > 0;
}

int until_next_end(const Strangers& strangers, Clock::time_point deadline) {
  const Clock::time_point next = strangers.next_end(deadline);
  return next == Clock::time_point::max() ? -1 : milliseconds_until(next);
}

Status rank_0_is_gone() {
  Status::Detail detail;
  detail.code = Code::remote;
  detail.rank = 0;
  detail.message = "rank 0 ended before it could gather the others";
  return Status(std::move(detail));
}

Status nobody_answers(const Rendezvous& where, int rank_0_port, const Status& why) {
  return Status(
      Code::invalid_usage,
      fmt::format("nobody answers where the unique id was made ({} port {}: {}): a rank 0 has joined by it, and "
                  "every communicator needs a new one; or the process that made it has ended, which must run "
                  "until all ranks have joined{}",
                  where.address, rank_0_port, why.message(),
                  where.address.starts_with("127.") ? "; or it runs on another machine, and needs "
                                                      "PACELINE_INTERFACE to be found from this one"
                                                    : ""));
}

// A socket of its own: on the interface that was chosen, or where this process reaches the signpost's.
Status listen_for_others(Rendezvous& where, int connection) {
  const std::string& choice = configuration().interface;
  Result<std::string> address = choice.empty() ? host_of(local_address(connection)) : interface_address(choice);
  PACE_TRY(address.status());
  Result<FileDescriptor> listener = listen_at(*address, 0);
  PACE_TRY(listener.status());
  where.address = *address;
  where.port = port_of(local_address(listener->get()));
  where.listener = PrivateDescriptor(std::move(*listener));
  return {};
}

// Whether the signpost shows this rank 0, and no other.
Status await_answer(ControlConnection& connection, const Until& until) {
  for (;;) {
    std::vector<ControlMessage> messages;
    const Status status = connection.receive(messages);
    if (!messages.empty()) return {};
    PACE_TRY(status);
    PACE_TRY(wait_for(connection.fd(), POLLIN, until));
  }
}

}  // namespace

Signpost::Signpost(FileDescriptor listener, FileDescriptor announcements, FileDescriptor wake, std::string secret)
    : secret_(std::move(secret)),
      port_(port_of(local_address(listener.get()))),
      rank_0_port_(port_of(local_address(announcements.get()))),
      listener_(std::move(listener)),
      announcements_(std::move(announcements)),
      wake_(std::move(wake)) {}

Result<std::shared_ptr<Signpost>> Signpost::put_up(const std::string& address, std::string secret) {
  Result<FileDescriptor> listener = listen_at(address, 0);
  PACE_TRY(listener.status());
  Result<FileDescriptor> announcements = listen_at(address, 0);
  PACE_TRY(announcements.status());
  FileDescriptor wake(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) return descriptor_error("cannot make an event descriptor", errno);
  std::shared_ptr<Signpost> made(
      new Signpost(std::move(*listener), std::move(*announcements), std::move(wake), std::move(secret)));
  try {
    const SignalsBlocked blocked;
    std::thread thread([made] { made->run(); });
    ::pthread_setname_np(thread.native_handle(), "pace-signpost");
    thread.detach();  // it may wait as long as the process lives
  } catch (const std::system_error& error) {
    return Status::system("cannot start the unique id's thread", error.code().value());
  }
  return made;
}

PrivateDescriptor Signpost::take_down() {
  if (!origin_.is_here()) return {};
  std::unique_lock lock(mutex);
  if (stage_ != Stage::waiting) return {};
  stage_ = Stage::taken;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  ended_.wait(lock, [this] { return stage_ == Stage::over; });  // the thread does nothing but wait for this
  return std::move(listener_);
}

// Whether it was not taken down before.
bool Signpost::enter(Stage next) {
  const std::lock_guard lock(mutex);
  if (next == Stage::showing && stage_ == Stage::taken) return false;
  stage_ = next;
  if (next == Stage::over) ended_.notify_all();
  return true;
}

void Signpost::run() {
  try {
    if (const Frame news = wait_for_rank_0()) show(news);
  } catch (const std::bad_alloc&) {
    // Then it is as if this process had ended.
  }
  const bool taken = !enter(Stage::showing);
  rank_0_.close();
  announcements_.reset();
  wake_.reset();
  if (!taken) listener_.reset();
  enter(Stage::over);
}

// What the others are to be told: where rank 0 is, or why it cannot gather them. None: the signpost is taken down.
Frame Signpost::wait_for_rank_0() {
  Strangers strangers(announcements_.get(), secret_, most_strangers);
  std::list<ControlConnection> callers;
  for (;;) {
    std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
    for (const ControlConnection& caller : callers) entries.push_back({caller.fd(), POLLIN, 0});
    strangers.add_to(entries);
    (void)::poll(entries.data(), entries.size(), until_next_end(strangers, Clock::time_point::max()));
    if (entries[0].revents != 0) return nullptr;

    std::size_t position = 0;
    for (ControlConnection& caller : callers) {
      if (entries[++position].revents == 0) continue;
      std::vector<ControlMessage> messages;
      const Status status = caller.receive(messages);
      if (messages.empty() && status.ok()) continue;
      if (!enter(Stage::showing)) return nullptr;
      if (messages.empty()) return make_frame(Refusal{rank_0_is_gone().detail()});
      if (std::holds_alternative<GatheringPlace>(messages.front())) rank_0_ = std::move(caller);
      return make_frame(messages.front());
    }
    const Status served = strangers.serve(
        entries,
        [&](const Hello& hello, PrivateDescriptor socket, std::uint64_t) {
          if (hello.kind == rank_0_connection) callers.emplace_back(std::move(socket));
        },
        [](const Status&, bool) {});
    if (!served.ok() && is_readable(wake_.get(), crowded_pause)) return nullptr;
  }
}

// As long as rank 0 has not met all, or has not given it up; or, if it cannot gather them, for a while.
void Signpost::show(const Frame& news) {
  announcements_.reset();  // a second rank 0 learns at once that there is one
  rank_0_.queue(news);
  rank_0_.flush();
  const Clock::time_point end = rank_0_.open() ? Clock::time_point::max() : Clock::now() + bad_news_time;
  Strangers strangers(listener_.get(), secret_, most_strangers);
  std::list<ControlConnection> told;
  while (Clock::now() < end) {
    std::vector<pollfd> entries = {{rank_0_.fd(), POLLIN, 0}};
    for (const ControlConnection& one : told) entries.push_back({one.fd(), POLLIN, 0});
    strangers.add_to(entries);
    (void)::poll(entries.data(), entries.size(), until_next_end(strangers, end));

    std::vector<ControlMessage> ignored;
    if (entries[0].revents != 0 && !rank_0_.receive(ignored).ok()) break;
    std::size_t position = 0;
    std::erase_if(
        told, [&](ControlConnection& one) { return entries[++position].revents != 0 && !one.receive(ignored).ok(); });
    const Status served = strangers.serve(
        entries,
        [&](const Hello& hello, PrivateDescriptor socket, std::uint64_t) {
          if (hello.kind != control_connection) return;
          ControlConnection& one = told.emplace_back(std::move(socket));
          one.queue(news);
          one.flush();
          one.finish();
        },
        [](const Status&, bool) {});
    if (!served.ok()) (void)is_readable(rank_0_.fd(), crowded_pause);
  }
  std::vector<ControlConnection*> open;
  for (ControlConnection& one : told) open.push_back(&one);
  drain(std::move(open), Clock::now() + parting_time);
}

Status gather_elsewhere(Rendezvous& where, int rank_0_port) {
  using Seconds = std::chrono::duration<double>;
  const auto begin = Clock::now();
  const Seconds longest(std::min(where.timeout, where.silence_timeout.value_or(where.timeout)));
  const Until until(begin + std::chrono::duration_cast<Clock::duration>(longest));
  Result<PrivateDescriptor> fd = connect_to(where.address, rank_0_port, until);
  if (!fd.ok())
    return own_error(0, may_pass(fd.status()) ? nobody_answers(where, rank_0_port, fd.status()) : fd.status());
  const Status introduced = introduce(fd->get(), where.secret, Hello{rank_0_connection, 0, 0, 0}, until);
  if (!introduced.ok()) return own_error(0, nobody_answers(where, rank_0_port, introduced));

  auto connection = std::make_shared<ControlConnection>(std::move(*fd));
  const Status listens = own_error(0, listen_for_others(where, connection->fd()));
  connection->queue(listens.ok() ? make_frame(GatheringPlace{where.address, static_cast<std::uint32_t>(where.port)})
                                 : make_frame(Refusal{listens.detail()}));
  connection->flush();  // into an empty socket: at once
  PACE_TRY(listens);
  if (const Status answer = await_answer(*connection, until); !answer.ok())
    return own_error(0, nobody_answers(where, rank_0_port, answer));
  where.timeout -= Seconds(Clock::now() - begin).count();
  where.why_not = [connection, gone_since = std::optional<Clock::time_point>()](const std::vector<int>&) mutable {
    std::vector<ControlMessage> ignored;
    if (!gone_since && !connection->receive(ignored).ok()) gone_since = Clock::now();
    if (!gone_since || Clock::now() - *gone_since < way_time) return Status();
    return own_error(
        0, Status(Code::invalid_usage, "the process that made the unique id has ended before all ranks have joined"));
  };
  return {};
}

void dismiss(const Rendezvous& where, int rank_0_port) {
  const Until until(Clock::now() + dismissing_time);
  const Result<PrivateDescriptor> fd = connect_to(where.address, rank_0_port, until);
  if (fd.ok()) (void)introduce(fd->get(), where.secret, Hello{rank_0_connection, 0, 0, 0}, until);
}

}  // namespace paceline
